"""cross_entropy in the emulator, races on, against fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.losses import calls
from flash_attention.operators.rows.op import RowConfig

from .compare import excess
from .values import DTYPES, ordinary, with_gaps

LOOPED = RowConfig(2, 64, False, 2)


def draw(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, ...]:
    """(logits, targets), some of which are ignored."""
    logits = ordinary(shape, dtype, seed) * 5
    random = torch.Generator().manual_seed(seed)
    target = torch.randint(shape[-1], shape[:-1], generator=random)
    target.view(-1)[2::5] = -100
    return logits, target


def exact(logits: torch.Tensor, target: torch.Tensor, z_loss: float = 0.0, **more: Any) -> Any:
    """The loss of each row in fp64, or reduced."""
    wide = logits.double().flatten(0, -2)
    reduction = more.pop("reduction", "mean")
    loss = F.cross_entropy(wide, target.flatten(), reduction="none", **more)
    counted = target.flatten() != -100
    loss = loss + torch.where(counted, z_loss * wide.logsumexp(-1) ** 2, 0.0)
    if reduction == "none":
        return loss.view(target.shape)
    return loss.sum() / (counted.sum() if reduction == "mean" else 1)


CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((7, 200), {}),
    ((2, 5, 1000), {"label_smoothing": 0.1, "reduction": "none"}),
    ((6, 33), {"z_loss": 1e-3, "reduction": "sum"}),
]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(("shape", "given"), CASES)
@pytest.mark.parametrize("inplace", [False, True])
def test_loss_and_gradient(
    shape: tuple[int, ...], given: dict[str, Any], dtype: torch.dtype, inplace: bool, seed: int
) -> None:
    logits, target = draw(shape, dtype, seed)
    wide = logits.double().requires_grad_()
    wanted = exact(wide, target, **given)
    leaf = logits.clone().requires_grad_()
    loss = operators.cross_entropy(leaf, target, inplace_backward=inplace, **given)
    assert excess(loss.detach(), wanted.detach(), 100.0 * (1 + loss.detach().abs().max())) <= 1
    grad = ordinary(tuple(loss.shape), torch.float32, seed + 1)
    (got,) = torch.autograd.grad(loss, leaf, grad)
    (slope,) = torch.autograd.grad(wanted, wide, grad.double())
    assert excess(got, slope, slope.abs().max()) <= 64
    assert torch.equal(leaf.detach(), got if inplace else logits)


def test_long_rows_in_a_loop_and_strides(seed: int) -> None:
    logits, target = draw((3, 17_001), torch.bfloat16, seed)
    assert excess(operators.cross_entropy(logits, target), exact(logits, target), 50.0) <= 4
    logits, target = draw((9, 150), torch.float32, seed)
    for view in (with_gaps(logits), logits.T.contiguous().T):
        loss = operators.cross_entropy(view, target, reduction="none", config=LOOPED)
        assert excess(loss, exact(view, target, reduction="none"), 50.0) <= 4


@pytest.mark.parametrize("inplace", [False, True])
def test_the_dispatched_operator_gives_the_same(inplace: bool, seed: int) -> None:
    """What torch.compile records, beside what an eager call does without PyTorch's dispatcher."""
    logits, target = draw((7, 200), torch.float32, seed)
    leaf, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    wanted = operators.cross_entropy(leaf, target, z_loss=0.1, inplace_backward=inplace)
    op = torch.ops.flash_attention.cross_entropy
    loss, _, _ = op(other, target, -100, 0.0, 0.1, "mean", inplace)
    assert torch.equal(loss, wanted)
    (got,) = torch.autograd.grad(loss, other)
    assert torch.equal(got, torch.autograd.grad(wanted, leaf)[0])


def test_logits_that_became_the_gradient_are_not_read_again(seed: int) -> None:
    logits, target = draw((7, 200), torch.float32, seed)
    leaf = logits.requires_grad_()
    loss = operators.cross_entropy(leaf, target, inplace_backward=True)
    torch.autograd.grad(loss, leaf, retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, leaf)


HELD: dict[str, Callable[[torch.Tensor], Any]] = {
    "logits": lambda logits: logits,
    "a view": lambda logits: logits[1:],
    "an array": lambda logits: logits.detach().numpy(),
}


@pytest.mark.parametrize("who", ["nobody", "retained", "its own graph", *HELD])
def test_the_gradient_is_written_over_logits_that_nobody_else_holds(who: str, seed: int) -> None:
    """By default. What holds them is asked for their values afterwards, where it has any."""
    start, target = draw((7, 200), torch.float32, seed)
    leaf = start.requires_grad_()
    logits = leaf.exp() if who == "its own graph" else leaf * 2.0  # exp keeps what it returns
    values, at, places = logits.detach().clone(), logits.data_ptr(), []
    logits.register_hook(lambda grad: places.append(grad.data_ptr()))  # type: ignore[no-untyped-call]
    loss = operators.cross_entropy(logits, target)
    kept = HELD[who](logits) if who in HELD else None
    del logits
    (got,) = torch.autograd.grad(loss, leaf, retain_graph=who == "retained")
    assert (places == [at]) is (who == "nobody")
    if who == "retained":
        assert torch.equal(torch.autograd.grad(loss, leaf)[0], got)
    if kept is not None:
        assert torch.equal(torch.as_tensor(kept), values[values.shape[0] - len(kept) :])


@pytest.mark.parametrize("inplace", [None, False])
def test_a_second_derivative_is_refused(inplace: bool | None, seed: int) -> None:
    """The first one with create_graph is what it is without, and the logits stay as they are."""
    start, target = draw((7, 200), torch.float32, seed)
    leaf = start.requires_grad_()
    loss = operators.cross_entropy(leaf * 2.0, target, inplace_backward=inplace)
    (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
    assert slope.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        torch.autograd.grad(slope.square().sum(), leaf)
    again = operators.cross_entropy(leaf * 2.0, target, inplace_backward=inplace)
    assert torch.equal(torch.autograd.grad(again, leaf)[0], slope.detach())


def test_the_log_sum_exp_by_itself_has_no_gradient() -> None:
    leaf = torch.zeros(2, 8).requires_grad_()
    op = torch.ops.flash_attention.cross_entropy
    _, lse, _ = op(leaf, torch.arange(2), -100, 0.0, 0.0, "mean", None)
    with pytest.raises(NotImplementedError, match="the log-sum-exp of flash_attention::cross_entr"):
        torch.autograd.grad(lse.sum(), leaf)


def test_rows_that_do_not_count_and_no_rows() -> None:
    """The mean of none is NaN, as in PyTorch, and gives no gradient."""
    leaf = torch.zeros(3, 8).requires_grad_()
    loss = operators.cross_entropy(leaf, torch.full((3,), -100))
    (got,) = torch.autograd.grad(loss, leaf)
    assert loss.isnan() and not got.any()
    none, nothing = torch.zeros(0, 8), torch.zeros(0, dtype=torch.int64)
    assert operators.cross_entropy(none, nothing).isnan()
    assert operators.cross_entropy(none, nothing, reduction="sum") == 0


@pytest.mark.parametrize("inplace", [None, False, True])
def test_it_is_recorded_with_its_gradient(
    inplace: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.compile does it, of logits that the graph makes; nothing is launched."""
    monkeypatch.setattr(calls, "run", lambda *_: None)
    op = torch.ops.flash_attention.cross_entropy

    def loss(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor]:
        return (op(x * 2.0, target, -100, 0.0, 0.0, "mean", inplace)[0],)

    with FakeTensorMode():
        given = torch.zeros(4, 8).requires_grad_(), torch.zeros(4, dtype=torch.int64)
    graph: Any = aot_export_joint_simple(loss, given, trace_joint=True)
    assert any(node.op == "output" for node in graph.graph.nodes)


def test_a_class_that_does_not_exist_is_not_read() -> None:
    target = torch.tensor([0, 10, -1, -100])
    loss = operators.cross_entropy(torch.zeros(4, 10), target, reduction="none")
    assert loss.isnan().tolist() == [False, True, True, False] and loss[3] == 0


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"target": torch.zeros(3)}, ValueError, "target has dtype torch.float32: allowed are torch.i"),
    ({"target": torch.zeros(4, dtype=torch.int64)}, ValueError, r"target has shape \(4,\): expect"),
    ({"label_smoothing": 1.5}, ValueError, "label_smoothing is 1.5: allowed are 0 to 1"),
    ({"reduction": "max"}, ValueError, "reduction is 'max': allowed are mean, sum, none"),
    ({"ignore_index": 1.0}, TypeError, "ignore_index is a float: expected an integer"),
    ({"inplace_backward": 1}, TypeError, "inplace_backward is an int: expected True or False"),
    ({"logits": torch.zeros(3, 0)}, ValueError, "there must be classes"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "words"), BAD, ids=[words[:25] for *_, words in BAD])
def test_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    good = {"logits": torch.zeros(3, 8), "target": torch.zeros(3, dtype=torch.int64)}
    with pytest.raises(kind, match=words):
        operators.cross_entropy(**(good | change))
