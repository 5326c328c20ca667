"""The kernels of cross entropy in the emulator: rows that programs share, losses that they add up,
planted bugs, and what the compiler makes of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.losses import calls, kernels, sums
from flash_attention.operators.losses import op as losses
from flash_attention.operators.rows.op import RowConfig, row_call
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import excess
from .planting import found, planted
from .test_cross_entropy import LOOPED, draw, exact
from .values import DTYPES

CUT = RowConfig(8, 128, True, 1)  # in pieces
SHARED = RowConfig(1, 32, False, 1)  # by several programs each, where PART is small


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(("part", "parts"), [(64, 4), (32, 8)])
@pytest.mark.parametrize("given", [{}, {"label_smoothing": 0.1, "z_loss": 1e-3}])
def test_rows_that_programs_share(
    given: dict[str, Any], part: int, parts: int, dtype: torch.dtype, seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The last part of a row is short, or nothing; so is the last group."""
    monkeypatch.setattr(losses, "PART", part)
    monkeypatch.setattr(losses, "TOGETHER", 32)
    logits, target = draw((23, 200), dtype, seed)
    logits[3, 64:128] = -torch.inf  # a part with nothing in it
    target[3] = 5
    config = RowConfig(1, part // 2, False, 1)
    call = row_call(23, 200, (logits,), (logits,), SMOOTH=False)
    assert calls.FORWARD.parts(config, call) == parts
    for reduction in calls.REDUCTIONS if "label_smoothing" not in given else ("none",):
        wanted = exact(logits, target, reduction=reduction, **given)
        loss = operators.cross_entropy(logits, target, reduction=reduction, config=config, **given)
        known = wanted.isfinite()
        assert excess(loss[known], wanted[known], 100.0) <= 4
        assert torch.equal(loss.isfinite(), known)


PUBLISHED = """\
tl.atomic_add(word + tl.arange(0, 1), tl.zeros([1], tl.int64) + value, sem="relaxed")"""

PLANTED = [
    ("REDUCED", "mask=place < rows, other=ignored)", "mask=place < rows, other=0)"),
    ("REDUCED", "value = tl.where(wanted == of.ignored, 0.0, value)", "value = value"),
    ("REDUCED", "blocks(begin, start, last,", "blocks(begin, start, end,"),
    ("REDUCED", "tl.minimum(place, rows - 1)", "place"),
    ("REDUCED", "(wanted != of.ignored).to", "(wanted == wanted).to"),
    ("REDUCED", "beside_of(found) - 1", "beside_of(found)"),
    ("REDUCED", "word >> 32", "word >> 31"),
    ("REDUCED", PUBLISHED, "tl.store(word + tl.arange(0, 1), tl.zeros([1], tl.int64) + value)"),
    ("REDUCED", "program % PARTS * length", "program % PARTS * BLOCK"),
    ("REDUCED", "product(share, exp(top - finite(most)[:, None]))", "share"),
    ("REDUCED", "return tl.sum(value, 0), tl.sum(", "return tl.max(value, 0), tl.sum("),
    ("SHARED", "mask=place < of.rows, other=of.ignored)", "mask=place < of.rows, other=0)"),
    ("SHARED", "tl.sum(number_of(taken(", "tl.max(number_of(taken("),
    ("BACKWARD", "scale / tl.load(divisor)", "scale"),
    ("BACKWARD", "wanted == ignored, 0.0, slope * scale", "row < 0, 0.0, slope * scale"),
    ("BACKWARD", "- right - even", "- right + even"),
]
OF_SUMS = [
    ("return higher, total", "return tl.max(tl.max(each, 3), 1), total"),
    ("shared(tl.where(inside, v, 0.0), GROUP", "shared(v, GROUP"),
    ("logits = tl.where(inside, v, 0.0)", "logits = v"),
    ("exp(v - tl.expand_dims(finite(most)[:, None], PIECES))", "exp(v)"),
    ("tl.arange(0, BLOCK // PIECE) * PIECE", "tl.arange(0, BLOCK // PIECE) * BLOCK"),
    ("shares += shared(tl", "shares = shared(tl"),
]


@pytest.mark.parametrize(
    ("name", "old", "new", "inside"),
    [*((*m, None) for m in PLANTED), *(("REDUCED", *m, sums) for m in OF_SUMS)],
)
def test_planted_bugs_are_found(
    name: str, old: str, new: str, inside: ModuleType | None, seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(losses, "PART", 64)
    logits, target = draw((9, 100), torch.float32, seed)
    wide = logits.double().requires_grad_()
    wanted = exact(wide, target, label_smoothing=0.1)
    each = exact(logits, target, label_smoothing=0.1, reduction="none")
    (slope,) = torch.autograd.grad(wanted, wide)

    def right() -> bool:
        leaf = logits.clone().requires_grad_()
        loss = operators.cross_entropy(leaf, target, label_smoothing=0.1)
        (got,) = torch.autograd.grad(loss, leaf)
        # What is wrong need not be compiled for the other configurations.
        for config in (LOOPED, SHARED, CUT):
            if excess(loss.detach(), wanted.detach(), 50.0) > 4:
                return False
            loss = operators.cross_entropy(logits, target, label_smoothing=0.1, config=config)
        of_parts = operators.cross_entropy(
            logits, target, label_smoothing=0.1, config=SHARED, reduction="none"
        )
        same = excess(loss.detach(), wanted.detach(), 50.0) <= 4
        same = same and excess(of_parts, each, 50.0) <= 4
        return same and excess(got, slope, slope.abs().max()) <= 64

    assert right()
    monkeypatch.setattr(calls, name, planted(getattr(calls, name), kernels, old, new, inside))
    assert found(right)


@pytest.mark.parametrize("config", [RowConfig(1, 128, True, 1), SHARED])
def test_losses_are_added_in_groups_and_words_are_zero_after_each_launch(
    config: RowConfig, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "TOGETHER", 32)
    monkeypatch.setattr(losses, "PART", 64)
    logits, target = draw((70, 100), torch.float32, seed)
    rows, lse, out, divisor = (torch.full(shape, 7.0) for shape in ((70,), (70,), (), ()))
    tensors = [logits, target, rows, lse, out, divisor, target]
    call = row_call(
        70, 100, tensors, (logits,), (0.0, 0.0), (-100,), SMOOTH=False, REDUCE=True, MEAN=True
    )  # fmt: skip
    words = tensors[-1] = torch.zeros(calls.REDUCED.words(config, call), dtype=torch.int64)
    for old, new, zero in (
        ("", "", True),
        ("tl.atomic_xchg(words, 0", "tl.atomic_xchg(words, 1", False),
        ("tl.atomic_xchg(count, 0", "tl.atomic_xchg(count, 1", False),
        ("tl.zeros_like(inside).to(tl.int64)", "tl.full(inside.shape, 1, tl.int64)", False),
    ):
        op = planted(calls.REDUCED, kernels, old, new) if old else calls.REDUCED
        for _ in range(2 if zero else 1):
            emulated.run(op, config, call, tensors)
            assert excess(out, exact(logits.double(), target), 50.0) <= 4
            assert divisor.item() == (target != -100).sum()
        assert words.any() != zero
        words.zero_()


@pytest.mark.parametrize("architecture", [80, 90])
def test_no_spills_and_loads_of_16_bytes(architecture: int) -> None:
    x = torch.empty(2, 131_072, dtype=torch.bfloat16)
    target, row = torch.zeros(2, dtype=torch.int64), torch.empty(2)
    call = row_call(
        2, x.shape[1], (x, target, row, row, row, row, target), (x,), (0.1, 0.0), (-100,),
        SMOOTH=True, REDUCE=True, MEAN=True,
    )  # fmt: skip
    op = calls.REDUCED
    compiled = compile_op(op, op.default(call), call, architecture=architecture)
    assert compiled.spill_bytes == 0 and "ld.global.v4.b32" in compiled.ptx
    tensors = (x, target, row, row, row, x)
    call = row_call(2, x.shape[1], tensors, (x, x), (0.1, 0.0), (1, -100), DIVIDE=True)
    of_logits = calls.BACKWARD
    config = of_logits.default(call)
    compiled = compile_op(of_logits, config, call, architecture=architecture)
    assert compiled.spill_bytes == 0 and "st.global.v4.b32" in compiled.ptx


@pytest.mark.parametrize("architecture", [80, 90])
def test_one_exponential_an_element(architecture: int) -> None:
    """One more for every 32 of a thread, in the loop and in a row's last block; one that joins
    threads, and one that joins parts."""
    x = torch.empty(2, 131_072, dtype=torch.bfloat16)
    target, row = torch.zeros(2, dtype=torch.int64), torch.empty(2)
    for columns, more in ((16_384, 1), (131_072, 2)):
        tensors = (x, target, row, row, row, row, target)
        call = row_call(
            2, columns, tensors, (x,), (0.0, 0.0), (-100,), SMOOTH=False, REDUCE=True, MEAN=False
        )  # fmt: skip
        op = calls.REDUCED
        compiled = compile_op(op, op.default(call), call, architecture=architecture)
        assert compiled.spill_bytes == 0
        assert compiled.ptx.count("ex2.approx") == 2 * (32 + 1) + more
        assert compiled.ptx.count("ld.global.v4.b32") == 2 * 4


@pytest.mark.parametrize(("columns", "shuffles"), [(64, 8), (256, 12), (1024, 8)])
def test_few_lanes_have_a_short_row(columns: int, shuffles: int) -> None:
    """Four, eight and sixteen, each with all pieces: so many turns of a maximum and a sum for the
    rows of a thread, with every release of Triton."""
    x, target, row = torch.empty(2, columns).half(), torch.zeros(2).long(), torch.empty(2)
    tensors = (x, target, row, row, row, row, target)
    call = row_call(
        2**20, columns, tensors, (x,), (0.0, 0.0), (-100,), SMOOTH=False, REDUCE=False, MEAN=False
    )  # fmt: skip
    op = calls.FORWARD
    config = op.default(call)
    compiled = compile_op(op, config, call, architecture=90)
    assert config.num_warps == 2 and compiled.spill_bytes == 0
    assert compiled.ptx.count("shfl.sync.bfly") == shuffles
