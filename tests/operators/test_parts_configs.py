"""Which rows several programs share, in what parts, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms.launches import PARTS as LAYER_NORM
from flash_attention.operators.norms.launches import PARTS_RMS as RMS_NORM
from flash_attention.operators.row_softmax.calls import PARTS as SOFTMAX
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.operators.rows.parts_op import PartsConfig, PartsOp
from flash_attention.triton_kit.offline import compile_op

from .compare import excess, softmax_excess
from .values import ordinary


def calls(columns: int, dtype: torch.dtype) -> list[tuple[PartsOp, RowCall]]:
    x, w, one = (torch.empty(n, dtype=dtype) for n in ((2, columns), columns, 2))
    norm: dict[str, Any] = {"RESIDUAL": False, "WEIGHT": True, "STATISTICS": False}
    tensors = (x, x, w, w, x, x, one.float(), one.float())
    return [
        *((SOFTMAX, row_call(2, columns, (x, x), (x, x), LOG=log, ONLINE=True))
          for log in (False, True)),
        *((op, row_call(2, columns, tensors, (x, x, x), numbers=(1e-5,), LAYER=layer, BIAS=layer,
                        **norm)) for op, layer in ((LAYER_NORM, True), (RMS_NORM, False))),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        pytest.param(
            dtype, n, marks=() if (dtype is torch.float32) == (i % 2 == 0) else pytest.mark.slow
        )
        for dtype in (torch.bfloat16, torch.float32)
        for i, n in enumerate((40_008, 65_536, 262_144, 1_000_000))
    ],
    ids=str,
)
def test_no_spills_and_many_programs_at_a_time(dtype: torch.dtype, columns: int) -> None:
    """So that 190 KiB are under way on a multiprocessor."""
    for op, call in calls(columns, dtype):
        config = op.default(call)
        compiled = compile_op(op, config, call, architecture=90)
        assert compiled.spill_bytes == 0
        registers = compiled.registers * 32 * config.num_warps
        programs = min(65_536 // registers, 228 * 1024 // (compiled.shared_bytes + 1024))
        assert programs * config.BLOCK * dtype.itemsize >= 190 * 1024
        assert re.search(r"cp\.async\.cg\.shared\.global .*, 0x10", compiled.ptx)


def test_parts_are_larger_where_there_would_be_many() -> None:
    sizes = {
        n: [op.default(call).BLOCK for op, call in calls(n, torch.bfloat16)]
        for n in (65_536, 65_600, 524_288, 524_352, 2**20)
    }
    assert sizes == {
        65_536: [4096, 4096, 4096, 8192], 65_600: [8192] * 4, 524_288: [8192] * 4,
        524_352: [16_384] * 4, 2**20: [16_384] * 4,
    }  # fmt: skip


def test_refused() -> None:
    (op, call), _, (norm, residual), _ = calls(1024, torch.bfloat16)
    for config, reason in (
        (PartsConfig(512, 1, 3), "num_warps 3: allowed are powers of two up to 32"),
        (PartsConfig(512, 64, 1), "CHUNKS 64: allowed are powers of two up to 32"),
        (PartsConfig(384, 1, 1), "BLOCK 384: allowed are 256, 512, 1024 with 32 threads"),
        (PartsConfig(131_072, 16, 8), "262272 bytes of shared memory: at most 232448"),
        (PartsConfig(256, 1, 1, -1), "PATIENCE -1: at least 0"),
    ):
        assert reason in "; ".join(op.problems(config, call))
    many = replace(call, rows=2**30)
    assert op.problems(PartsConfig(256, 1, 1), many) == [
        "4294967296 parts: at most 2147483647 are possible"
    ]
    added = replace(residual, switches=(*residual.switches, ("RESIDUAL", True)))
    assert norm.problems(PartsConfig(512, 2, 1), added) == ["RESIDUAL: the kernel adds none"]
    odd = replace(call, align=4)
    assert op.problems(PartsConfig(256, 1, 1), odd) == [
        "rows do not begin at multiples of 16 bytes"
    ]
    assert not op.space(odd, 90)


def test_by_configuration(seed: int) -> None:
    """Through the operators."""
    x = ordinary((5, 1000), torch.float16, seed)
    exact = x.double()
    config = PartsConfig(256, 1, 1)
    got = operators.softmax(x, config=config)
    assert excess(got, exact.softmax(-1), exact.softmax(-1)) <= 4
    r = (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(x, config=config), exact * r, (exact * r).abs()) <= 4
    with pytest.raises(ValueError, match="RESIDUAL: the kernel adds none"):
        operators.rms_norm(x, residual=x, config=config)
    with pytest.raises(ValueError, match="BLOCK 500: allowed are 256, 512, 1024"):
        operators.log_softmax(x, config=PartsConfig(500, 1, 1))


def test_the_default_of_long_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only of those that it can take, and is faster for."""
    ran: list[str] = []
    words = PartsOp.words

    def noted(
        self: PartsOp, config: PartsConfig, call: RowCall, device: torch.device
    ) -> torch.Tensor:
        ran.append(self.name)
        return words(self, config, call, device)

    monkeypatch.setattr(PartsOp, "words", noted)
    x = ordinary((2, 41_000), torch.bfloat16, seed)
    assert softmax_excess(operators.softmax(x), x, False) <= 4 and ran
    for name in ("layer_norm", "rms_norm"):
        ran.clear()
        assert getattr(operators, name)(x).isfinite().all() and ran == ["norms.parts.forward"]
    ran.clear()
    for short in (x[:, :8192], x[:, :40_001], x.float()[:, :8188]):
        operators.softmax(short), operators.layer_norm(short)
    operators.softmax(x, algorithm="two_pass"), operators.rms_norm(x[:, :8192])
    operators.layer_norm(x, residual=x)
    assert not ran
