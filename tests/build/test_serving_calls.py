"""Serving calls like those that the extension remembers: launched again, of any sizes."""

from __future__ import annotations

from flash_helpers.kernels.serve_config import ServeSizes

from .conftest import Tree
from .remembered_calls import EXCHANGE

# Tensors of an array library that says they are on a CUDA device, of any sizes; nothing reads their
# memory. Kernel 0 is of a forward pass, so that the launch itself refuses: it was reached.
CALLS = (
    EXCHANGE
    + """
from flash_helpers.kernels.serve_args import NO_WINDOW, pack_serve_args
class Tensor:
    requires_grad, negated, dtype = False, False, "fp16"
    def __init__(self, at, *sizes, bits=16, code=None, strides=None, **attributes):
        self.at, self.bits, self.n = at << 20, bits, len(sizes)
        self.code = (2 if bits == 16 else 0) if code is None else code
        if strides is None:
            strides = [1]
            for size in sizes[:0:-1]: strides.insert(0, size * strides[0])
        self.shape, self.strides = (c.c_int64 * self.n)(*sizes), (c.c_int64 * self.n)(*strides)
        self.__dict__.update(attributes)
class Parameter(Tensor): pass
class Wrapped(Tensor): pass
def read(x, found):
    found[0] = Described(x.at, (2, 0), x.n, x.code, x.bits, 1, x.shape, x.strides, 0)
    return 0
def on_stream(kind, device, found):
    found[0] = stream
    return 0
api = Exchange((1, 0), None, (None, None, None), READ(read), STREAM(on_stream))
new = c.pythonapi.PyCapsule_New
new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
busy, stream, grad, converted = False, None, True, []
around = _C.Surroundings([lambda: busy], [], lambda: grad, lambda x: x.negated)
def as_fp32(sinks):
    converted.append(sinks.at >> 20)
    return Tensor(800, *sinks.shape, bits=32, code=2)
made = []
def empty(q, sizes=None, dtype=None): return made.append((sizes, dtype)) or Tensor(900, 1)
def strided(*described): return made.append(described) or Tensor(900, 1)
def description(like): return tuple(like.shape), tuple(like.strides), "of scratch"
def new_calls(direct=False, device=0, few=3, units=10**9, many=128):
    tensors = _C.NewTensors(empty, empty, direct and strided or None, description, lambda: device)
    return _C.ServingCalls(Tensor, new(c.addressof(api), b"dlpack_exchange_api", None), around,
                           tensors, "fp32", Parameter, as_fp32, most_rows=256, many_heads=many,
                           pair_heads=many + 2,
                           few_heads=few, cut_heads=few + 1, few_keys=64, most_units=units)
NAMES = ("q k v out cu_seqlens_q cu_seqlens_k seqused_q seqused_k leftpad slots block_table "
         "page_table s_aux learnable_sink sinks qv scale causal window softcap num_splits "
         "for_caches results refused").split()
def cached(batch=3, pages=5, columns=4, queries=1, heads=4, d=64, start=1, page=16):
    "A step of a generation."
    return dict.fromkeys(NAMES) | {
        "q": Tensor(start, batch, queries, heads, d), "k": Tensor(start + 1, pages, page, 2, d),
        "v": Tensor(start + 2, pages, page, 2, d), "seqused_k": Tensor(start + 3, batch, bits=32),
        "block_table": Tensor(start + 4, batch, columns, bits=32), "causal": True,
        "window": (-1, -1), "softcap": 0.0, "num_splits": 0, "for_caches": True, "results": 1,
        "refused": (None, 0.0, False, 0)}
def record(call, **changed):
    "As Python packs it, but for what no call here has to tell apart."
    q, k, table = call["q"], call["k"], call["block_table"]
    at = {name: call[name].at for name in ("q", "k", "v", "seqused_k", "block_table")}
    o = 900 << 20 if call["out"] is None else call["out"].at
    return pack_serve_args(at | {
        "o": o, "batch": q.shape[0], "n_rows": q.shape[0] * q.shape[1], "seqlen_q": q.shape[1],
        "seqlen_k": table.shape[1] * k.shape[1], "page_size": k.shape[1],
        "table_stride": table.strides[0], "window_left": NO_WINDOW} | changed)
def remember(call, kept=True, by_sizes=False, **changed):
    known.remember(tuple(call.values()), 0, record(call, **changed), (None,) * 3, kept, by_sizes)
    return len(known)
def ask(call=None, **changed):
    try:
        return str(known.attend(*((call or cached()) | changed).values()))
    except Exception as error:
        return "launched" if "does not serve" in str(error) else f"{type(error).__name__}: {error}"
known = new_calls()
"""
)

# What is asked after cached() was remembered, and what becomes of it.
ASKED = {
    "ask()": "launched",
    "ask(cached(start=50))": "launched",
    "ask(cached(batch=63, pages=900, columns=31, start=50))": "launched",
    # 128 KV heads may be for another kernel.
    "ask(cached(batch=64, pages=900, columns=31, start=50))": "None",
    "ask(cached(batch=4))": "launched",
    # Each of 4 KV heads may have splits of its own.
    "ask(cached(batch=2))": "None",
    "ask(page_table=cached()['block_table'], block_table=None)": "launched",
    # One sequence has no stride from one to the next: it has a record of its own.
    "ask(cached(batch=1))": "None",
    "ask(cached(pages=1))": "None",
    "ask(cached(queries=2))": "None",
    "ask(cached(heads=8))": "None",
    "ask(cached(d=128))": "None",
    "ask(cached(page=8))": "None",
    "ask(cached(batch=0))": "None",
    "ask(seqused_k=Tensor(9, 4, bits=32))": "None",
    "ask(seqused_k=Tensor(9, 3, bits=64))": "None",
    "ask(seqused_k=Tensor(9, 3, bits=32, strides=[2]))": "None",
    "ask(seqused_k=17)": "None",
    "ask(seqused_k=None)": "None",
    "ask(leftpad=Tensor(9, 3, bits=32))": "None",
    "ask(block_table=Tensor(9, 3, 4, bits=32, strides=[9, 1]))": "launched",
    "ask(block_table=Tensor(9, 3, 4, bits=32, strides=[1, 3]))": "None",
    "ask(block_table=Tensor(9, 2, 4, bits=32))": "None",
    "ask(block_table=None)": "None",
    "ask(page_table=Tensor(9, 3, 4, bits=32))": "None",
    "ask(v=Tensor(9, 6, 16, 2, 64))": "None",
    "ask(k=Tensor(9, 5, 16, 2, 64, strides=[4096, 256, 64, 1]))": "None",
    "ask(q=Tensor(9, 3, 1, 4, 64, requires_grad=True))": "None",
    "globals().update(grad=False) or ask(q=Tensor(9, 3, 1, 4, 64, requires_grad=True))":
        "launched",
    "globals().update(grad=True) or ask(q=Parameter(9, 3, 1, 4, 64))": "launched",
    "ask(q=Wrapped(9, 3, 1, 4, 64))": "None",
    "ask(q=Tensor(9, 3, 1, 4, 64, negated=True))": "None",
    "ask(q=Tensor(0, 3, 1, 4, 64))": "None",
    "ask(q=object())": "None",
    "ask(out=Tensor(9, 3, 1, 4, 64))": "None",
    "ask(s_aux=Tensor(9, 4, bits=32, code=2))": "None",
    "ask(qv=Tensor(9, 3, 1, 4, 512))": "None",
    "ask(qv=32)": "None",
    "ask(scale=0.5)": "None",
    "ask(scale=-0.5)": "None",
    "ask(causal=False)": "None",
    "ask(causal=1)": "None",
    "ask(window=(None, -1))": "None",
    "ask(window=[-1, -1])": "None",
    "ask(softcap=0)": "launched",
    "ask(softcap=1.0)": "None",
    "ask(num_splits=1)": "None",
    "ask(for_caches=False)": "None",
    "ask(results=2)": "None",
    "ask(refused=(0.1,))": "None",
    "ask(refused=(Tensor(9, 1),))": "None",
    "globals().update(busy=True) or ask()": "None",
    "globals().update(busy=False) or ask()": "launched",
    # With a GPU a stream that is none would be asked whether it is captured.
    "_C.device_count() and None or globals().update(stream=64) or ask()": "None",
    "globals().update(stream=None) or ask({'q': 1})":
        "TypeError: expected 24 positional arguments, got 1",
}  # fmt: skip


REMEMBER_THREE = (
    "known.remember(tuple((cached() | {'results': 3}).values()), 0, record(cached()), "
    "(Tensor(700, 9), None, None), False, False)"
)


def answers(tree: Tree, *lines: str) -> list[str]:
    """What each of the lines of Python is."""
    return tree.run_with_extension(CALLS + "".join(f"print({line})\n" for line in lines)).split(
        "\n"
    )[:-1]


def test_a_call_of_other_sizes_is_launched_again(tree: Tree) -> None:
    first, n, *found = answers(tree, "ask()", "remember(cached())", *ASKED)
    assert (first, n) == ("None", "1")
    for (call, expected), answer in zip(ASKED.items(), found, strict=True):
        assert answer == expected, call


def test_where_the_launch_depends_on_sizes_they_are_equal(tree: Tree) -> None:
    found = answers(
        tree, "remember(cached(), by_sizes=True)", "ask(cached(start=50))", "ask(cached(pages=9))",
        "ask(cached(batch=4))", "ask(cached(columns=5))",
    )  # fmt: skip
    assert found == ["1", "launched", "launched", "None", "None"]


def test_with_few_heads_few_keys_are_another_kind(tree: Tree) -> None:
    """Of 2 sequences and 2 KV heads; 4 pages are 64 keys."""
    found = answers(
        tree, "remember(cached(batch=2))", "ask(cached(batch=2, columns=3, start=50))",
        "ask(cached(batch=2, columns=5))", "remember(cached(batch=2, columns=5))",
        "ask(cached(batch=2, columns=90, pages=99))", "ask(cached(batch=2, columns=4))",
    )  # fmt: skip
    assert found == ["1", "launched", "None", "2", "launched", "launched"]


def test_calls_that_kernels_cannot_count_go_the_long_way(tree: Tree) -> None:
    """Of 3 sequences, 4 heads and 2 KV heads: 6 tiles, and 4 units of 4 or 5 pages' keys."""
    sizes = ServeSizes(batch=3, n_rows=3, seqlen_q=1, n_heads_q=4, n_heads_kv=2)
    assert [sizes.most_units(16 * columns) for columns in (4, 5, 6)] == [24, 24, 30]
    found = answers(
        tree, "globals().update(known=new_calls(units=24))", "remember(cached())",
        "ask(cached(columns=5))", "ask(cached(columns=6))",
        "globals().update(known=new_calls(units=23))", "remember(cached())",
    )  # fmt: skip
    assert found == ["None", "1", "launched", "None", "None", "0"]


def test_each_number_of_few_heads_is_a_kind(tree: Tree) -> None:
    found = answers(
        tree, "globals().update(known=new_calls(few=6))", "remember(cached(batch=2))",
        "ask(cached(batch=2, start=50))", "ask(cached(batch=3))", "ask(cached(batch=4))",
    )  # fmt: skip
    assert found == ["None", "1", "launched", "None", "None"]


def test_heads_that_are_served_in_pairs_are_a_kind(tree: Tree) -> None:
    """Of 2 KV heads, where 8 are many and 10 are served in pairs."""
    found = answers(
        tree, "globals().update(known=new_calls(many=8))", "remember(cached(batch=4))",
        "ask(cached(batch=4, start=50))", "ask(cached(batch=3))", "ask(cached(batch=5))",
        "remember(cached(batch=5))", "ask(cached(batch=6))",
    )  # fmt: skip
    assert found == ["None", "1", "launched", "None", "None", "2", "launched"]


def test_a_call_that_was_launched_on_copies_is_not_remembered(tree: Tree) -> None:
    found = answers(
        tree,
        "remember(cached(), q=7 << 20)",
        "remember(cached(), seqlen_k=5)",
        "remember(cached(), seqlen_q=5)",
    )
    assert found == ["0", "0", "1"], "the last is a number that all such calls have"


def test_an_output_that_is_given_lies_apart(tree: Tree) -> None:
    found = answers(
        tree,
        "remember(cached() | {'out': Tensor(20, 3, 1, 4, 64)})",
        "ask(out=Tensor(30, 3, 1, 4, 64))",
        "ask(cached(batch=9), out=Tensor(30, 9, 1, 4, 64))",
        "ask(out=cached()['q'])",
        "ask(out=cached()['v'])",
        "ask(out=cached()['block_table'])",
        "ask(out=Tensor(30, 4, 1, 4, 64))",
        "ask(out=Tensor(30, 3, 1, 4, 32))",
        "ask(out=Tensor(30, 3, 1, 4, 64, strides=[64, 64, 64, 1]))",
        "ask()",
    )
    assert found == ["1", "launched", "launched", *["None"] * 7]


def test_new_memory_is_made_for_each_call(tree: Tree) -> None:
    """Where scratch memory does not stay, and of the log-sum-exp."""
    found = answers(tree, REMEMBER_THREE, "ask(results=3)", "ask(results=2)", "made")
    new = [((3, 1, 4, 64), "fp16"), ((3, 4, 1), "fp32"), (None, None)]
    assert found == ["None", "launched", "None", str(new)]


def test_new_memory_is_made_without_the_dispatcher(tree: Tree) -> None:
    """On the current device alone: the function knows no other."""
    found = answers(
        tree,
        f"globals().update(known=new_calls(True)) or {REMEMBER_THREE}",
        "ask(cached(batch=60, pages=900, columns=31), results=3)",
        "made",
        f"globals().update(known=new_calls(True, device=1), made=[]) or {REMEMBER_THREE}",
        "ask(results=3)",
        "made",
    )
    new = [
        ((60, 1, 4, 64), (256, 256, 64, 1), "fp16"),
        ((60, 4, 1), (4, 1, 1), "fp32"),
        ((9,), (1,), "of scratch"),
    ]
    other = [((3, 1, 4, 64), "fp16"), ((3, 4, 1), "fp32"), (None, None)]
    assert found == ["None", "launched", str(new), "None", "launched", str(other)]
