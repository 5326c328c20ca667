"""Which rows the programs of a cluster share, what is refused, the machine code, and the
operators' calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.norms.launches import CLUSTER as LAYER_NORM
from flash_attention.operators.norms.launches import CLUSTER_RMS as RMS_NORM
from flash_attention.operators.row_softmax.calls import CLUSTER as SOFTMAX
from flash_attention.operators.rows.cluster_op import ClusterConfig, ClusterOp
from flash_attention.operators.rows.op import RowCall, row_call
from flash_attention.triton_kit.offline import compile_op

from .compare import excess, softmax_excess
from .values import ordinary

SMALL = ClusterConfig(512, 2)
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)


def call_of(
    columns: int, dtype: torch.dtype, rows: int = 2048, layer: bool = False, **switches: bool
) -> RowCall:
    x, w, one = (torch.empty(n, dtype=dtype) for n in ((2, columns), columns, 2))
    tensors = (x, x, w, w, x, x, one.float(), one.float())
    given: dict[str, Any] = {"RESIDUAL": False, "WEIGHT": True, "STATISTICS": True, **switches}
    return row_call(
        rows, columns, tensors, (x, x, x), numbers=(1e-5,), LAYER=layer, BIAS=layer, **given
    )


def softmax_call(columns: int, dtype: torch.dtype, rows: int = 2048) -> RowCall:
    x = torch.empty(2, columns, dtype=dtype)
    return row_call(rows, columns, (x, x), (x, x), LOG=False, ONLINE=True)


def blocks(op: ClusterOp, calls: list[RowCall]) -> list[int | None]:
    spaces = [op.space(call, 90) for call in calls]
    return [space[0].BLOCK if space else None for space in spaces]


def test_which_rows() -> None:
    """None where another kernel is faster."""
    half, single = torch.bfloat16, torch.float32
    lengths = (8192, 8200, 16_384, 16_392, 32_768, 32_776, 65_536, 65_544, 131_072, 131_080)

    def softmax(dtype: torch.dtype, rows: int) -> list[int | None]:
        return blocks(SOFTMAX, [softmax_call(n, dtype, rows) for n in lengths])

    def norm(op: ClusterOp, dtype: torch.dtype, rows: int) -> list[int | None]:
        return blocks(op, [call_of(n, dtype, rows, op is LAYER_NORM) for n in lengths])

    for rows in (127, 255, 256):
        for dtype in (half, single):
            assert softmax(dtype, rows) == [None, *[4096] * 4, *[8192] * 4, 16_384]
            last = 16_384 if dtype == half and rows > 127 else None
            assert norm(RMS_NORM, dtype, rows) == [None, *[4096] * 6, 8192, 8192, last]
    beyond = [None] * 3
    assert norm(LAYER_NORM, half, 255) == [None, *[4096] * 6, *beyond]
    for rows in (256, 1024):
        assert norm(LAYER_NORM, half, rows) == [None, 2048, 2048, None, 4096, None, 4096, *beyond]
    assert norm(LAYER_NORM, single, 255) == [None, *[2048] * 4, None, None, *beyond]
    assert norm(LAYER_NORM, single, 256) == [None, *[2048] * 4, 4096, 8192, None, 8192, None]


def test_which_of_the_longest_rows() -> None:
    half, single = torch.bfloat16, torch.float32
    lengths = (131_080, 196_608, 262_136, 262_144, 262_152)
    calls = [softmax_call(n, half) for n in lengths]
    assert blocks(SOFTMAX, calls) == [*[16_384] * 4, None]
    assert [op.num_warps for call in calls for op in SOFTMAX.space(call, 90)] == [4, 8, 4, 8]
    calls = [call_of(n, half) for n in lengths]
    assert blocks(RMS_NORM, calls) == [*[16_384] * 4, None]
    assert [op.num_warps for call in calls for op in RMS_NORM.space(call, 90)] == [8, 4, 8, 8]
    wide = [call_of(n, single, 128) for n in lengths]
    assert blocks(RMS_NORM, wide) == [None, 16_384, None, 16_384, None]
    wide = [call_of(n, single, 128, layer=True) for n in lengths]
    assert blocks(LAYER_NORM, wide) == [None, None, None, 16_384, None]


def test_rows_of_pairs_and_vectors_of_fp32() -> None:
    """Pairs among several rows; vectors of fp32 beside rows of 16 bits need other registers."""
    half = torch.bfloat16
    for rows, of_norms, of_softmax in ((255, 1, 1), (256, 2, 1), (512, 2, 2)):
        call = call_of(16_384, half, rows)
        assert [config.ROWS for config in RMS_NORM.space(call, 90)] == [of_norms]
        call = call_of(16_384, half, rows, layer=True)
        assert [config.ROWS for config in LAYER_NORM.space(call, 90)] == [of_norms]
        space = SOFTMAX.space(softmax_call(16_384, half, rows), 90)
        assert [config.ROWS for config in space] == [of_softmax]
    for rows, of_norms in ((255, 1), (1023, 2), (1024, 4)):
        (config,) = LAYER_NORM.space(call_of(32_768, half, rows, layer=True), 90)
        assert (of_norms, of_norms == 4) == (config.ROWS, config.SHARED)
    for columns, of_rms in ((16_384, 4096), (32_768, 4096), (32_776, None)):
        call = call_of(columns, half)
        others = call_of(columns, torch.float32).layouts[1:]
        wide = replace(call, layouts=(call.layouts[0], *others))
        assert blocks(RMS_NORM, [wide]) == [of_rms] and RMS_NORM.space(call, 90)[0].ROWS == 2
        assert blocks(LAYER_NORM, [wide]) == [None]
    assert LAYER_NORM.space(call_of(32_768, half), 90)


@pytest.mark.parametrize("columns", [8200, 16_384, 32_760, 65_536, 131_064, 262_136])
@each_dtype
def test_loads_are_whole_vectors_and_registers_are_few(columns: int, dtype: torch.dtype) -> None:
    calls = [(SOFTMAX, softmax_call(columns, dtype)), (RMS_NORM, call_of(columns, dtype))]
    for op, call in [*calls, (LAYER_NORM, call_of(columns, dtype, layer=True))]:
        for config in op.space(call, 90):
            compiled = compile_op(op, config, call)
            assert compiled.registers <= config.registers
            assert compiled.spill_bytes <= 400
            loads = [line for line in compiled.ptx.splitlines() if "ld.global" in line]
            assert loads and all(".v4.b32" in line for line in loads)
            assert op.cluster(config, call) == -(-columns // config.BLOCK)


def test_refused() -> None:
    call = call_of(1128, torch.bfloat16)
    for config, reason in (
        (ClusterConfig(512, 3), "num_warps 3: allowed are powers of two up to 32"),
        (ClusterConfig(16_384, 2), "allowed are 512, 1024, 2048, 4096, 8192 with 64 threads"),
        (ClusterConfig(512, 2, 300), "registers 300: allowed are 24 to 255"),
        (ClusterConfig(512, 2, ROWS=3), "ROWS 3: allowed are 1, 2, 4, 8"),
        (ClusterConfig(512, 2, PIECES=3), "PIECES 3: allowed are 1, 2, 4, 8"),
        (ClusterConfig(512, 2, PIECES=2), "PIECES 2: BLOCK 512 has fewer vectors a thread"),
        (ClusterConfig(8192, 2, ROWS=2), "allowed are 512, 1024, 2048, 4096 with 64 threads"),
        (ClusterConfig(32_768, 32, SHARED=True), "up to 262144 bytes, of 196608"),
        (ClusterConfig(512, 2, AHEAD=True, SHARED=True), "AHEAD, SHARED: allowed is one of them"),
    ):
        assert reason in "; ".join(RMS_NORM.problems(config, call))
    many = replace(call, columns=16 * 512 + 8)
    assert RMS_NORM.problems(SMALL, many) == ["BLOCK 512: 17 parts, and clusters of 2 to 16"]
    one = replace(call, columns=512)
    assert RMS_NORM.problems(SMALL, one) == ["BLOCK 512: 1 parts, and clusters of 2 to 16"]
    added = call_of(1128, torch.bfloat16, RESIDUAL=True)
    assert RMS_NORM.problems(SMALL, added) == ["RESIDUAL: the kernel adds none"]
    assert not SOFTMAX.space(replace(softmax_call(32_768, torch.bfloat16), align=4), 90)


def test_through_the_operators(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By configuration, and by default where they are faster: on no CPU."""
    x = ordinary((3, 1000), torch.float16, seed)
    exact = x.double()
    got = operators.softmax(x, config=SMALL)
    assert excess(got, exact.softmax(-1), exact.softmax(-1)) <= 4
    r = (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(x, config=SMALL), exact * r, (exact * r).abs()) <= 4
    with pytest.raises(ValueError, match="RESIDUAL: the kernel adds none"):
        operators.rms_norm(x, residual=x, config=SMALL)
    wide = torch.nn.functional.layer_norm(exact, (1000,))
    assert excess(operators.layer_norm(x, config=SMALL), wide, wide.abs() + 1) <= 4
    long = ordinary((2, 20_480), torch.bfloat16, seed)
    call = softmax_call(20_480, long.dtype)
    assert SOFTMAX.space(call, 90) and not SOFTMAX.is_faster(call, long)
    ran: list[str] = []

    def noted(self: ClusterOp, call: RowCall, x: torch.Tensor) -> bool:
        ran.append(self.name)
        return bool(self.space(call, 90))

    monkeypatch.setattr(ClusterOp, "is_faster", noted)
    assert softmax_excess(operators.softmax(long), long, False) <= 4
    exact = long.double() * (long.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    assert excess(operators.rms_norm(long), exact, exact.abs() + 1) <= 4
    exact = torch.nn.functional.layer_norm(long.double(), (20_480,))
    assert excess(operators.layer_norm(long), exact, exact.abs() + 1) <= 4
    assert ran == ["row_softmax.cluster.forward", *["norms.cluster.forward"] * 2]
