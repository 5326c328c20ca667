"""The persistent product of matrices for Hopper: its sm_90a code in the emulator, races on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton

from flash_attention import operators
from flash_attention.operators.matrices import persistent
from flash_attention.operators.matrices.op import MatmulCall, matmul_call
from flash_attention.operators.matrices.persistent_op import PersistentConfig, PersistentMatmul
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.versions import minor_of

from .matrices import ALLOWED, FUNCTIONS, off
from .planting import found, is_put_back, planted
from .test_matmul import draw
from .values import ordinary, shifted


@pytest.mark.parametrize("a_rows", [True, False])
@pytest.mark.parametrize("b_rows", [True, False])
def test_products(a_rows: bool, b_rows: bool, seed: int) -> None:
    """More tiles than the emulated GPU has multiprocessors, and more steps than buffers."""
    dtype = torch.float16 if a_rows else torch.bfloat16
    for m, n, k in ((520, 520, 328), (8, 8, 8)):
        a = draw((m, k), dtype, seed) if a_rows else draw((k, m), dtype, seed).T
        b = draw((k, n), dtype, seed + 1) if b_rows else draw((n, k), dtype, seed + 1).T
        y = operators.matmul(a, b, version="persistent")
        assert off(y, a, b) <= ALLOWED["ieee"]


@pytest.mark.parametrize(("k", "held"), [pytest.param(264, 2, marks=pytest.mark.slow), (712, 4)])
def test_every_configuration(k: int, held: int, seed: int) -> None:
    """Of few steps, under which fewer parts of the tile before are finished."""
    a, b = draw((264, k), torch.float16, seed), draw((k, 264), torch.float16, seed + 1)
    op, call = PersistentMatmul(), matmul_call(a, b, None, None, a, "none", "ieee")
    assert op.default(call).as_dict()["HELD"] == held
    for config in op.space(call, 90):
        y = operators.matmul(a, b, version="persistent", config=config)
        assert off(y, a, b) <= ALLOWED["ieee"]
        compiled = emulated.compiled(op, config, call)
        assert compiled.spill_bytes == 0 and not compiled.warnings
        assert compiled.shared_bytes <= config.shared_bytes


@pytest.mark.parametrize(
    ("biased", "activation"),
    [
        pytest.param(
            biased, f, id=f"{'bias' if biased else ''}-{f}",
            marks=() if f == ("gelu_tanh" if biased else "silu") else pytest.mark.slow,
        )
        for biased in (True, False)
        for f in FUNCTIONS
    ],
)  # fmt: skip
def test_what_follows(activation: str, biased: bool, seed: int) -> None:
    """Each program has two tiles at least, one of which is finished behind the other's product."""
    dtype = torch.float16 if biased else torch.bfloat16
    a, b = draw((520, 712), dtype, seed), draw((712, 520), dtype, seed + 1)
    bias = draw((520,), dtype, seed + 2) if biased else None
    given: dict[str, Any] = {"bias": bias, "activation": activation}
    y = operators.matmul(a, b, version="persistent", **given)
    assert off(y, a, b, **given) <= ALLOWED["ieee"]
    op, call = PersistentMatmul(), matmul_call(a, b, bias, None, y, activation, "ieee")
    assert op.default(call).HELD > 0
    compiled = emulated.compiled(op, op.default(call), call)
    assert compiled.spill_bytes == 0 and not compiled.warnings


def test_silu_of_large_sums() -> None:
    """Of the largest of bf16, too."""
    x = torch.zeros(8, 16, dtype=torch.bfloat16)
    bias = torch.tensor([3.38e38, -3.38e38, 1e5, -1e5, 88, -88, torch.inf, torch.nan]).bfloat16()
    y = operators.matmul(x, x.T, version="persistent", bias=bias, activation="silu")
    exact = torch.nn.functional.silu(bias.double()).bfloat16()
    torch.testing.assert_close(y[0], exact, rtol=0, atol=1e-30, equal_nan=True)


def test_where_it_hides_what_follows() -> None:
    """Large products of 16 bits with a bias or an activation, but without a residual."""
    call = MatmulCall(
        4096, 4096, 4096, "float16", (True, True), (4096, 4096, 0, 4096), True, "silu"
    )
    hides = PersistentMatmul().hides
    assert hides(call, 132) and hides(replace(call, bias=False), 132)
    assert hides(replace(call, activation="none"), 132) and hides(replace(call, k=64), 512)
    for other in (
        replace(call, bias=False, activation="none"), replace(call, residual=True),
        replace(call, dtype="float32"), replace(call, k=56), replace(call, aligned=False),
        replace(call, strides=(4100, 4096, 0, 4096)),
    ):  # fmt: skip
        assert not hides(other, 132)
    assert not hides(call, 513)


def test_without_steps() -> None:
    empty = torch.zeros(8, 0, dtype=torch.float16)
    assert torch.equal(operators.matmul(empty, empty.T, version="persistent"), torch.zeros(8, 8))


X = torch.zeros(8, 16, dtype=torch.float16)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"a": X.float(), "b": X.T.float()}, "a has dtype torch.float32: the persistent kernel takes"),
    ({"a": X[:, :9].contiguous(), "b": X.T[:9]}, "a has rows .or columns. 9 elements apart"),
    ({"a": shifted(X)}, "a, b, out or bias does not begin at a multiple of 16 bytes"),
    ({"residual": torch.zeros(8, 8).half()}, "version is 'persistent': it takes no residual"),
    ({"config": PersistentConfig(HELD=8)}, "8 of 8 parts held: there are 2, 4 or 8"),
    ({"config": PersistentConfig()}, "6 parts held: k is 16, at most 768"),
    ({"config": PersistentConfig(BLOCK_N=64, HELD=0)}, "BLOCK_N 64: allowed are 128, 256"),
    ({"config": PersistentConfig(BLOCK_M=256, HELD=0)}, "tiles of 256 x 256: a thread has no"),
    ({"config": PersistentConfig(BUFFERS=8, HELD=0)}, "412672 bytes of shared memory: at most"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words[:25] for _, words in BAD])
def test_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        operators.matmul(**{"a": X, "b": X.T, "version": "persistent", **change})


PLANTED = [
    ("((step // s.count) & 1) ^ 1", "(step // s.count) & 1"),
    ("mbarrier.wait(s.full.index(place), (step // s.count) & 1)", "pass"),
    ("warpgroup_mma_wait(1,", "warpgroup_mma_wait(2,"),
    ("give_back(s, step + i - 1)", "give_back(s, step + i)"),
    ("acc = warpgroup_mma_wait(0, deps=[acc])", "acc = acc"),
    ("tma.store_wait(1)  # what", "pass  # what"),
    ("tma.store_wait(1)  # what", "tma.store_wait(2)  # what"),
    ("column + PART * WIDTH]", "column]"),
    ("held_column = column", "held_column = 0"),
    ("held_row = row", "held_row = 0"),
    ("(s.ROWS * s.groups)  # beyond", "0  # beyond"),
    ("i % 2 == GROUP", "i % 2 == 0 and i < 2"),
    ("activate_sum(part, more,", "activate_sum(part, -more,"),
    ("bias_s.index(GROUP).store(scaled", "(scaled"),
    ("bias_s.index(GROUP).slice(PART", "bias_s.index(GROUP).slice(0"),
    ("bias_s.index(GROUP).store(gl", "(gl"),
    ("activate_sum(part, more, s.ACTIVATION, s.FOLDED)", "part + more"),
    ("scaled_bias(more, s.FOLDED)", "scaled_bias(more, not s.FOLDED)"),
    ("mask=at < n", "mask=at < n // 2"),
    ("[k, column]", "[column, k]"),
    ("s.groups * a_desc.block_type.nbytes + ", ""),
    ("s.empty.index(place), count=G", "s.empty.index(place), count=1"),
    ("row + g * s.ROWS, k", "row, k"),
]  # fmt: skip
if minor_of(triton.__version__) < (3, 9):  # later releases put the fence there themselves
    PLANTED.append(("    fence_async_shared()\n    async", "    async"))


@pytest.mark.parametrize(("old", "new"), [("", ""), *PLANTED])
def test_planted_bugs_are_found(old: str, new: str, seed: int) -> None:
    a, b = draw((264, 328), torch.float16, seed), ordinary((328, 264), torch.float16, seed + 1)
    bias = draw((264,), torch.float16, seed + 2)

    def right(op: PersistentMatmul) -> bool:
        out = torch.full((264, 264), float("nan"), dtype=torch.float16)
        call = matmul_call(a, b, bias, None, out, "relu", "ieee")
        config = PersistentConfig(128, 128, 64, 2, 3, 4, 2)
        emulated.run(op, config, call, (a, b, out, bias))
        return off(out, a, b, bias, "relu") <= 8

    mutant = planted(PersistentMatmul(), persistent, old, new)
    assert found(lambda: right(mutant)) is (bool(old) and not is_put_back(old))
