"""Calls of PyTorch's scaled_dot_product_attention, from its arguments to the launch."""

from __future__ import annotations

import pytest

from .conftest import Tree
from .remembered_calls import TENSORS, packed

CALLS = """
if _C.device_count():
    print("there is a device")
    sys.exit(0)
class Half(Tensor): pass
busy = grad = exact = False
backend, asked, served = 1, [], []
def choose(*given, **named):
    if backend is None: raise RuntimeError("no backend")
    asked.append((len(given), sorted(named)))
    return backend
def serve(*call): return served.append(call[3:]) or "served"
def prototype(config, q, sizes): return print(sizes) or LSE
around = _C.Surroundings([lambda: busy], [], lambda: grad, lambda x: x.negated)
new = _C.NewTensors(lambda x: x.like, None, None, None, None)
calls = _C.SdpaCalls(known, around, new, "plain", "recorded", "exact", lambda: exact, prototype,
                     lambda *call: None, choose, 1, serve)
def attend(*given, **named):
    try:
        return str(calls.attend(*given, **named))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def change(**values): globals().update(values)
Tensor.requires_grad = Tensor.negated = False
q, k, v, Tensor.like = tensors
rows = Tensor(1 << 30, shape=(c.c_int64 * 4)(1, 64, 1, 128))
trained = Tensor(2 << 20, requires_grad=True)
LSE = Tensor(0, like=rows)
known.remember("plain", *tensors, None, None, False, 0, ARGS)
known.remember("plain", *tensors, None, 0.5, True, 0, ARGS)
def remember(key): known.remember(key, *tensors, rows, None, False, 0, ARGS)
def swap(): Tensor.shape[1:3] = Tensor.shape[2], Tensor.shape[1]
swap()
"""


def answers(tree: Tree, *lines: str) -> list[str]:
    """What each of the lines of Python is."""
    code = (TENSORS + CALLS).replace("ARGS", packed())
    said = tree.run_with_extension(code + "".join(f"print({line})\n" for line in lines))
    found = said.splitlines()[2:]
    if found == ["there is a device"]:
        pytest.skip("the kernel would read what is at made-up addresses")
    return ["launched" if line.startswith("CudaError: ") else line for line in found]


SPELLINGS = (
    "attend(q, k, v)",
    "attend(q, k, v, None, 0.0, False)",
    "attend(q, k, v, None, 0, scale=None)",
    "attend(value=v, key=k, query=q, attn_mask=None)",
    "attend(q, k, v, None, 0.0, True, scale=0.5)",
    "attend(q, k, v, is_causal=True, scale=0.5, enable_gqa=False)",
    "attend(q, k, v, enable_gqa=True)",  # whether PyTorch takes it for these is its answer
)


def test_a_plain_call_is_launched_however_it_is_written(tree: Tree) -> None:
    *found, asked, served = answers(tree, *SPELLINGS, "asked", "served")
    assert found == ["launched"] * len(SPELLINGS)
    named = [[], [], ["scale"], ["attn_mask", "key", "query", "value"], ["scale"]]
    named += [["enable_gqa", "is_causal", "scale"], ["enable_gqa"]]
    positional = [3, 6, 5, 0, 6, 3, 3]
    assert asked == str(list(zip(positional, named, strict=True))) and served == "[]"


PYTORCH_S = (
    "attend(q, k, v, q)",
    "attend(q, k, v, dropout_p=0.1)",
    "attend(q, k, v, is_causal=1)",
    "attend(q, k, v, scale=-0.5)",
    "attend(q, k, v, scale=1)",
    "attend(q, k)",
    "attend()",
    "attend(q, k, v, None, 0.0, False, None)",
    "attend(q, k, v, query=q)",
    "attend(q, k, v, window=3)",
    "attend(1, 2, 3)",
    "attend(q, k, Half(3 << 20))",
    "attend(q, k, Tensor(3 << 20, shape=(c.c_int64 * 4)(1, 1, 64, 128), negated=True))",
    "change(busy=True) or attend(q, k, v)",
)


def test_other_calls_are_pytorch_s(tree: Tree) -> None:
    *found, asked, launched, other = answers(
        tree,
        *PYTORCH_S,
        "asked",
        "change(busy=False) or attend(q, k, v)",
        "change(backend=2) or attend(q, k, v)",
    )
    assert found == ["None"] * len(PYTORCH_S)
    assert asked == "[]", "nothing is asked for what is refused anyway"
    assert (launched, other) == ("launched", "None")


def test_tensors_of_two_types_are_pytorch_s_to_refuse(tree: Tree) -> None:
    bf16 = "Described(tensor.at, (2, 0), 4, 4 if tensor is v else 2, 16, 1"
    changed = f"""
def other(tensor, found):
    found[0] = {bf16}, tensor.shape, tensor.strides, 0)
    return 0
"""
    code = (TENSORS + CALLS).replace("ARGS", packed()).replace("READ(read)", "READ(pick)")
    code = code.replace(
        "api = ", "def pick(*given): return reading(*given)\nreading = read\napi = "
    )
    said = tree.run_with_extension(f"{code}{changed}reading = other\nprint(attend(q, k, v), asked)")
    if "there is a device" in said:
        pytest.skip("the kernel would read what is at made-up addresses")
    assert said.splitlines()[-1] == "None []"


def test_a_first_call_is_served_in_full(tree: Tree) -> None:
    found = answers(
        tree, "attend(q, k, v, is_causal=True)", "served", "change(backend=None) or attend(q, k, v)"
    )
    assert found == ["served", "[(None, True, False)]", "RuntimeError: no backend"]


def test_a_recorded_call_has_kernels_for_its_gradients(tree: Tree) -> None:
    """Which the key says by which it is remembered; lse is of the kernel's sizes."""
    found = answers(
        tree,
        "attend(q, trained, v)",
        "change(grad=True) or attend(q, k, v)",
        "attend(q, trained, v)",
        "served",
        "swap() or remember('recorded') or swap() or attend(q, trained, v)",
        "change(exact=True) or attend(q, trained, v)",
        "swap() or remember('exact') or swap() or attend(q, trained, v, is_causal=False)",
    )
    sizes = "(1, 64, 1, 128)"
    assert found == [
        "launched", "launched", sizes, "served", "[(None, False, True)]",
        "launched", "served", "launched",
    ]  # fmt: skip


# set_asyncgen_hooks takes its arguments as PyTorch's functions do.
DETOUR = """
def said(function, *given):
    try:
        return function(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
function, seen = sys.set_asyncgen_hooks, []
def first(*given, **named):
    seen.append((given, named))
    return named.get("finalizer")
print(said(_C.Detour, len, first), said(_C.Detour, first, first), sep="; ")
detour = _C.Detour(function, first)
print(said(_C.Detour, function, first))
print(function is sys.set_asyncgen_hooks, function.__doc__[:18], function.__name__)
print(function(finalizer="taken"), function(firstiter=None), function(None), seen)
print(said(function, 3))
detour.end() or detour.end()
print(function(finalizer=None), len(seen), sys.getrefcount(first) == before)
"""


def test_a_function_of_c_can_be_offered_to_another_first(tree: Tree) -> None:
    code = DETOUR.replace("print(said(_C.D", "before = sys.getrefcount(first)\nprint(said(_C.D", 1)
    refused, second, same, taken, error, ended = tree.run_with_extension(code).splitlines()
    expected = "TypeError: expected a function of C that takes a tuple and a dictionary"
    assert refused == f"{expected}; {expected}"
    assert second == "RuntimeError: there is a detour already: end it first"
    assert same == "True set_asyncgen_hooks set_asyncgen_hooks"
    asked = [((), {"finalizer": "taken"}), ((), {"firstiter": None}), ((None,), {})]
    assert taken == f"taken None None {asked}"
    assert error.startswith("TypeError: callable firstiter expected")
    assert ended == "None 4 True"
