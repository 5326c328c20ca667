"""Calls like those that the extension remembers, from their arguments to the launch."""

from __future__ import annotations

import pytest

from .conftest import Tree
from .remembered_calls import REMEMBERED, TENSORS, packed

PLAIN = """
if _C.device_count():
    print("there is a device")
    sys.exit(0)
around = {"recorder": None}
busy = grad = exact = False
def other(): raise RuntimeError("asked")
def surroundings(*quiet):
    return _C.Surroundings([lambda: busy, *quiet], [(around, "recorder", None),
                           (around, "not in this release", 1)], lambda: grad, Tensor.is_neg)
def calls(*quiet):
    return _C.PlainCalls(known, surroundings(*quiet), new, "plain", "recorded", "exact",
                         lambda: exact, prototype, lambda *call: None)
made, described, device = [], [], 0
def like(x): return made.append("like") or x.like
def description(x): return described.append(x) or ("size", "stride", "rows" if x is LSE else "o")
def strided(size, stride, kind): return made.append(kind) or (rows if kind == "rows" else o)
new = _C.NewTensors(like, None, None, None, None)
def prototype(config, q, sizes):
    asked.append((config, sizes))
    return LSE
def said(function, *given):
    try:
        return str(function(*given))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def attend(*qkv, scale=None, causal=False, exactly=False, lse=False, quiet=()):
    given = qkv or tensors[:3]
    return said(calls(*quiet).attend, *given, scale, causal, exactly, lse)
def compute(*qkv, heads_first=False, scale=None):
    return said(calls().compute, *(qkv or tensors[:3]), scale, False, heads_first)
Tensor.requires_grad, Tensor.negated, Tensor.is_neg = False, False, lambda self: self.negated
asked, rows = [], Tensor(1 << 30, shape=(c.c_int64 * 4)(1, 64, 1, 128))
LSE, o = Tensor(0, like=rows), tensors[3]
Tensor.like = o
negated, trained = Tensor(3 << 20, negated=True), Tensor(1 << 20, requires_grad=True)
def remember(key, lse):
    known.remember(key, *tensors, lse, None, False, 0, ARGS)
"""


def plain_answers(tree: Tree, *lines: str) -> list[str]:
    """What each of the lines of Python is."""
    code = (TENSORS + PLAIN).replace("ARGS", packed())
    said = tree.run_with_extension(code + "".join(f"print({line})\n" for line in lines))
    answers = said.splitlines()[2:]
    if answers == ["there is a device"]:
        pytest.skip("the kernel would read what is at made-up addresses")
    return ["launched" if line.startswith("CudaError: ") else line for line in answers]


def test_a_plain_call_goes_straight_to_the_launch(tree: Tree) -> None:
    known, *unknown, asked = plain_answers(
        tree,
        "remember('plain', None) or attend()",
        "attend(scale=0.5)", "attend(scale=-0.5)", "attend(scale=1)", "attend(causal=True)",
        "attend(lse=True)", "attend(1, 2, 3)", "attend(*tensors[:2], negated)",
        "attend(quiet=[other])",
    )  # fmt: skip
    assert known == "launched"
    assert unknown == ["None"] * 7 and asked == "RuntimeError: asked"


def test_outputs_are_made_without_the_dispatcher(tree: Tree) -> None:
    """As PyTorch describes them, asked once for a kind of tensor; on the current device alone."""
    *launched, n_described, made = plain_answers(
        tree,
        "globals().update(new=_C.NewTensors(like, None, strided, description, lambda: device)) or "
        "remember('plain', None) or remember('plain', rows) or attend()",
        "attend(lse=True)",
        "compute(heads_first=True)",
        "globals().update(device=1) or attend(lse=True)",
        "(described.count(tensors[0]), described.count(LSE))",
        "made",
    )
    assert launched == ["launched", "launched", "None", "launched"]
    assert n_described == "(2, 3)", "a tensor whose heads come first is of another kind"
    assert made == str(["o", "o", "rows", "o", "rows", "like", "like"])


def test_a_call_that_something_has_to_see_is_not_launched(tree: Tree) -> None:
    answers = plain_answers(
        tree,
        "remember('plain', None) or globals().update(busy=True) or attend()",
        "around.update(recorder=1) or globals().update(busy=False) or attend()",
        "around.update(recorder=None) or attend()",
    )
    assert answers == ["None", "None", "launched"]


def test_calls_that_are_recorded_have_keys_of_their_own(tree: Tree) -> None:
    """A key by which a call is remembered says that there are kernels for its gradients."""
    answers = plain_answers(
        tree,
        "remember('plain', None) or remember('plain', rows) or attend(trained, *tensors[1:3])",
        "globals().update(grad=True) or attend()",
        "attend(trained, *tensors[1:3])",
        "remember('recorded', rows) or attend(trained, *tensors[1:3])",
        "attend(trained, *tensors[1:3], exactly=True)",
        "globals().update(exact=True) or attend(trained, *tensors[1:3])",
        "remember('exact', rows) or attend(trained, *tensors[1:3])",
        "globals().update(exact=False) or attend(trained, *tensors[1:3], exactly=True)",
        "asked",
    )
    launched, none = "launched", "None"
    assert answers[:-1] == [launched, launched, none, launched, none, none, launched, launched]
    assert answers[-1] == str([(None, (1, 64, 1, 128))] * 6), "once for each object"


def test_a_call_that_pytorch_has_seen_is_launched_in_any_mode(tree: Tree) -> None:
    answers = plain_answers(
        tree,
        "remember('plain', rows) or globals().update(busy=True, grad=True) or compute(trained, "
        "*tensors[1:3])",
        "compute(*tensors[:2], negated)", "compute(1, 2, 3)", "compute(scale=0.5)",
        "said(calls().compute, *tensors[:3], None, False)",
    )  # fmt: skip
    assert answers[:4] == ["launched", "None", "None", "None"]
    assert answers[4] == "TypeError: expected 6 positional arguments, got 5"


def test_heads_may_come_before_the_sequence(tree: Tree) -> None:
    """As in scaled_dot_product_attention: the kernel's tensor is the one with both exchanged."""
    answers = plain_answers(
        tree,
        "remember('plain', rows) or compute(heads_first=True)",
        "Tensor.shape.__setitem__(slice(1, 3), [1, 64]) or compute(heads_first=True)",
        "asked",
    )
    assert answers == ["None", "launched", str([(None, (1, 1, 64, 128)), (None, (1, 64, 1, 128))])]


GRADIENTS = """
busy = grad = False
around = _C.Surroundings([lambda: busy], [], lambda: grad, lambda x: x.negated)
def choose(q, q_sizes, k_sizes, causal, deterministic):
    if q_sizes[3] == 80: return None
    print(q_sizes, k_sizes, causal, deterministic)
    return "exact" if deterministic else "config"
def scratch(config, q, q_sizes, k_sizes, causal): return SCRATCH[config]
new = _C.NewTensors(lambda x: x.like, None, None, None, None)
gradients = _C.PlainGradients(known, around, new, choose, lambda *a: scratch(*a)[0],
                              lambda *a: scratch(*a)[1])
Tensor.negated = False
for name in "qkv": found[name].like = found["d_" + name]
for name in ("lse", "row_stats", "d_q_sums"): found[name].shape = (c.c_int64 * 4)(*Tensor.shape)
SCRATCH = {"config": [Tensor(0, like=found[name]) for name in ("row_stats", "d_q_sums")],
           "exact": [Tensor(0, like=found["row_stats"]), None]}
def call(function=gradients.attend, scale=None, causal=False, exact=False, wanted=(1, 1, 1),
         d_o=found["d_o"], more=(), **changed):
    saved = tuple((found | changed)[name] for name in ("q", "k", "v", "o", "lse"))
    try:
        return str(function(d_o, None, saved, (scale, causal, exact), wanted, *more))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""
# Calls, and what becomes of them.
GRADIENT_CALLS = {
    "call()": "launched",
    "call(wanted=(1, 0, 1))": "None",
    "known.remember('config', *(found | {'d_k': None}).values(), None, False, 0, args) or "
    "call(wanted=(1, 0, 1))": "launched",
    "call(scale=0.125)": "None",
    "call(d_o=None)": "None",
    "call(d_o=Tensor(5 << 20, negated=True))": "None",
    "call(q=object())": "None",
    "call(q=Tensor(1 << 20, shape=(c.c_int64 * 4)(1, 64, 1, 80)))": "None",  # no kernels
    "call(exact=True)": "None",
    "known.remember('exact', *(found | {'d_q_sums': None}).values(), None, False, 0, args) or "
    "call(exact=True)": "launched",
    "globals().update(grad=True) or call()": "None",
    "call(gradients.compute, more=[False])": "launched",
    "call(gradients.compute, q=Tensor(1 << 20, negated=True), more=[False])": "None",
    "globals().update(grad=False) or call(gradients.attend_heads_first)": "None",
    "Tensor.shape.__setitem__(slice(1, 3), [1, 64]) or call(gradients.attend_heads_first)": (
        "launched"
    ),
    "call(gradients.attend)": "None",
    "Tensor.shape.__setitem__(slice(1, 3), [64, 1]) or call()": "launched",
    "globals().update(grad=False, busy=True) or call()": "None",
    "globals().update(busy=False) or call(wanted=(1, 1))": "TypeError: expected a tuple of 3",
}


def test_gradients_go_straight_to_the_launch(tree: Tree) -> None:
    """Kernel 0 is of a forward pass, so that the launch itself refuses: it was reached."""
    code = "\n".join(f"print({call})" for call in GRADIENT_CALLS)
    said = tree.run_with_extension(f"{TENSORS}{REMEMBERED}{GRADIENTS}{code}").splitlines()[4:]
    chosen = [line for line in said if line.startswith("(1, ")]
    sizes, swapped = (
        "(1, 64, 1, 128) (1, 64, 1, 128) False",
        "(1, 1, 64, 128) (1, 1, 64, 128) False",
    )
    kinds = [f"{sizes} False", f"{sizes} True", f"{swapped} False"]
    assert chosen == kinds, "asked once for each kind"
    answers = [line for line in said if line not in chosen]
    for (call, expected), answer in zip(GRADIENT_CALLS.items(), answers, strict=True):
        launched = "it computes no gradients" in answer
        assert expected == ("launched" if launched else answer), call
