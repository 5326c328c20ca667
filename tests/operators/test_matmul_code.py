"""What docs/operators.md says of the machine code of each version of the product of matrices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("triton")

from flash_attention.operators.matrices.config import DIRECT, configs, without_overlap
from flash_attention.operators.matrices.op import DirectMatmul, MatmulCall, TiledMatmul
from flash_attention.operators.matrices.persistent_op import PersistentMatmul
from flash_attention.triton_kit.offline import Compiled, compile_op

N = 4096
PLAIN = MatmulCall(N, N, N, "float16", (True, True), (N, N, 0, N))
FUSED = replace(PLAIN, strides=(N, N, N, N), bias=True, activation="silu", residual=True)
ARCHITECTURES = (80, 90)
PATTERNS = {
    "tensor cores": r"^\s*(?:mma\.sync|wgmma\.mma_async)",
    "cp.async": r"cp\.async\.c[ag]\.",
    "TMA": r"cp\.async\.bulk\.tensor",
    "loads": r"ld\.global",
    "stores": r"st\.global",
}
each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


@cache
def version(name: str, architecture: int) -> Compiled:
    tiled = TiledMatmul(architecture)
    config = tiled.default(PLAIN)
    made: dict[str, tuple[Any, Any, MatmulCall]] = {
        "v0": (DirectMatmul(), DIRECT, PLAIN),
        "v1": (tiled, without_overlap(config), PLAIN),
        "v2": (tiled, config, PLAIN),
        "v4": (tiled, config, FUSED),
        "v5": (PersistentMatmul(), PersistentMatmul().default(PLAIN), PLAIN),
    }
    op, config, call = made[name]
    return compile_op(op, config, call, architecture=architecture)


def count(compiled: Compiled, what: str) -> int:
    return len(re.findall(PATTERNS[what], compiled.ptx, re.MULTILINE))


@each_architecture
def test_v0_has_no_tensor_cores_and_v1_has(architecture: int) -> None:
    direct, tiled = version("v0", architecture), version("v1", architecture)
    assert count(direct, "tensor cores") == 0 and direct.shared_bytes < 2**13
    assert count(tiled, "tensor cores") > 0
    assert ("wgmma" in tiled.ptx) is (architecture == 90)


@each_architecture
def test_v2_has_loads_in_flight_and_v1_has_none(architecture: int) -> None:
    tiled, pipelined = version("v1", architecture), version("v2", architecture)
    assert count(tiled, "cp.async") == 0 and count(tiled, "loads") > 0
    assert count(pipelined, "cp.async") > 0 and count(pipelined, "loads") == 0
    config = TiledMatmul(architecture).default(PLAIN)
    stage = config.shared_bytes(2) // config.num_stages
    kept = config.num_stages - (architecture == 80)  # mma's operands have left to registers
    assert pipelined.shared_bytes == kept * stage


@each_architecture
def test_v4_adds_only_its_operands(architecture: int) -> None:
    plain, fused = version("v2", architecture), version("v4", architecture)
    for what in ("tensor cores", "cp.async", "stores"):
        assert count(plain, what) == count(fused, what), what
    assert count(fused, "loads") > count(plain, "loads") == 0
    assert fused.shared_bytes == plain.shared_bytes


def test_v5_loads_by_tma() -> None:
    compiled = version("v5", 90)
    assert count(compiled, "TMA") > 0 and count(compiled, "tensor cores") > 0
    assert count(compiled, "cp.async") == count(compiled, "loads") == count(compiled, "stores") == 0
    assert "setmaxnreg" in compiled.ptx and compiled.spill_bytes == 0 and not compiled.warnings


@pytest.mark.parametrize(
    ("activation", "dtype"),
    [
        pytest.param(f, dtype, marks=() if few else pytest.mark.slow)
        for f in ("none", "relu", "silu", "gelu_tanh", "gelu_erf")
        for dtype in ("float16", "bfloat16")
        for few in [(f, dtype) in (("silu", "bfloat16"), ("gelu_erf", "float16"))]
    ],
)
def test_v4_of_large_products_adds_only_the_bias(activation: str, dtype: str) -> None:
    """The kernel of v5, whose parts of another tile fit into the registers, too."""
    op, call = PersistentMatmul(), replace(PLAIN, bias=True, activation=activation, dtype=dtype)
    assert op.hides(call, 132) and op.default(call).HELD > 0
    compiled = compile_op(op, op.default(call), call, architecture=90)
    assert count(compiled, "TMA") > 0 and count(compiled, "tensor cores") > 0
    assert count(compiled, "cp.async") == count(compiled, "stores") == 0
    assert count(compiled, "loads") == 4  # of two columns a thread, by each group
    assert compiled.spill_bytes == 0 and not compiled.warnings


@each_architecture
@pytest.mark.parametrize("k", [N, N + 8, N + 1])
def test_loads_are_as_wide_as_the_sizes_allow(k: int, architecture: int) -> None:
    """A k that is a multiple of 8 alone needs a mask, and stays in flight by 16 bytes; an odd one
    cannot."""
    call = replace(PLAIN, k=k, strides=(k, N, 0, N))
    op = TiledMatmul(architecture)
    compiled = compile_op(op, op.default(call), call, architecture=architecture)
    wide = len(re.findall(r"cp\.async\.cg\.shared\.global .*, 0x10", compiled.ptx))
    assert (count(compiled, "cp.async") > 0) and (wide > 0)
    assert (count(compiled, "loads") > 0) is (k % 2 == 1)


def space() -> Iterator[Any]:
    for architecture in ARCHITECTURES:
        for kind in ("half", "tf32", "tf32x3", "ieee"):
            for config in configs(N, N, kind, architecture):
                # What is the default somewhere is looked at every time.
                few = () if kind == "half" and config.BLOCK_K > 32 else (pytest.mark.slow,)
                yield pytest.param(architecture, kind, config, marks=few)


@pytest.mark.parametrize(("architecture", "kind", "config"), [*space()])
def test_no_spills(architecture: int, kind: str, config: Any) -> None:
    dtype, precision = ("float16", "ieee") if kind == "half" else ("float32", kind)
    call = replace(PLAIN, dtype=dtype, precision=precision)
    compiled = compile_op(TiledMatmul(architecture), config, call, architecture=architecture)
    assert compiled.spill_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["gelu_erf", "gelu_tanh", "silu", "relu"])
@pytest.mark.parametrize(
    ("architecture", "kind", "config"), [p for p in space() if p.values[1] == "half"]
)
@pytest.mark.parametrize("residual", [True, False], ids=["residual", ""])
def test_epilogues_do_not_spill(
    architecture: int, kind: str, config: Any, activation: str, residual: bool
) -> None:
    call = replace(FUSED, activation=activation, residual=residual)
    compiled = compile_op(TiledMatmul(architecture), config, call, architecture=architecture)
    assert compiled.spill_bytes == 0


def test_offsets_beyond_32_bits() -> None:
    wide = replace(PLAIN, m=2**20, strides=(N, N, 0, N))
    assert wide.wide and not PLAIN.wide
    op = TiledMatmul()
    _, code = op.code(op.default(wide), wide)
    assert code.wide and code.aligns == wide.aligns
