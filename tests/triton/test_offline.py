"""What the compiler makes of every configuration of the plain Triton kernel, and the numerics of
the sm_80 code in the emulator."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.triton import TritonForwardConfig, configs, emulated
from flash_attention.triton.op import TritonAttention
from flash_attention.triton_kit.versions import minor_of, require_triton
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare

_SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}


class Case(NamedTuple):
    config: TritonForwardConfig
    dtype: str
    d_head: int
    causal: bool
    architecture: int

    def __str__(self) -> str:
        words = [f"sm{self.architecture}", self.dtype, f"d{self.d_head}"]
        words += ["causal" if self.causal else "full", *map(str, self.config.as_dict().values())]
        return "-".join(words)


def all_cases() -> Iterator[Case]:
    for architecture in (80, 90):
        for d_head in (32, 64, 128, 256):
            for config in configs(d_head, architecture):
                for causal in (False, True):
                    yield Case(config, "fp16", d_head, causal, architecture)
            yield Case(configs(d_head, architecture)[0], "bf16", d_head, True, architecture)


def spilled_bytes(case: Case) -> int:
    """Of the stack, each stored and loaded once. None, but with the ptxas of 3.8 and 3.9 (12.9),
    which puts this code into 168 registers, for a third block on each SM."""
    tight = case.config == TritonForwardConfig(64, 32, 4, 3) and case.d_head == 128
    newer = minor_of(require_triton()) >= (3, 8)
    return 24 if tight and newer and case.architecture == 80 else 0


def check(case: Case) -> None:
    compiled = TritonAttention().compile(*case)
    assert compiled.stack_bytes <= spilled_bytes(case)
    assert compiled.spill_bytes <= 2 * spilled_bytes(case)
    assert not compiled.warnings
    assert compiled.shared_bytes <= _SHARED_BYTES[case.architecture]
    assert compiled.n_warps == case.config.num_warps
    assert ("wgmma.mma_async" in compiled.ptx) == (case.architecture == 90)


@pytest.mark.parametrize("architecture", [80, 90])
def test_a_configuration(architecture: int) -> None:
    check(Case(configs(128, architecture)[0], "fp16", 128, True, architecture))


@pytest.mark.slow
@pytest.mark.parametrize("case", list(all_cases()), ids=str)
def test_every_configuration(case: Case) -> None:
    check(case)


@pytest.mark.slow
def test_spills_are_seen() -> None:
    compiled = TritonAttention().compile(TritonForwardConfig(128, 128, 4, 2), "fp16", 128, True)
    assert compiled.spill_bytes > 1000


def test_the_environment_does_not_change_the_code() -> None:
    """What Triton does by default, it takes from the environment, and will change in 3.10. In
    processes of their own: Triton keeps what it has compiled."""
    code = """if True:
        from flash_attention.gluon import GluonForwardConfig
        from flash_attention.triton import TritonForwardConfig
        from flash_attention.gluon.op import GluonAttention
        from flash_attention.triton.op import TritonAttention
        config = GluonForwardConfig(BLOCK_M=128, BLOCK_N=64, NUM_BUFFERS=2)
        print(TritonAttention().compile(TritonForwardConfig(64, 32, 4, 2), "fp16", 64, False).ptx)
        print(GluonAttention(False).compile(config, "fp16", 64, False).ptx)
    """
    texts = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "TRITON_DEFAULT_FP_FUSION": value},
        ).stdout
        for value in ("0", "1")
    ]  # fmt: skip
    assert texts[0].count(".visible .entry") == 2
    assert texts[0] == texts[1]


def test_a_bad_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match=r"BLOCK_N 48: allowed are 16, 32, 64, 128, 256"):
        TritonAttention().compile(TritonForwardConfig(64, 48), "fp16", 64, False)


def run(
    d_head: int, lengths: tuple[int, int], causal: bool, dtype: DType, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(output in the emulator, reference): two query heads for one KV head, K and V of an odd
    length in memory that continues."""
    random = torch.Generator().manual_seed(seed)

    def draw(length: int, heads: int) -> torch.Tensor:
        values = torch.randn((2, length, heads, d_head), generator=random)
        return values.to(dtype.to_torch_dtype())

    q, k, v = draw(lengths[0], 2), draw(lengths[1], 1), draw(lengths[1], 1)
    out = torch.full_like(q, float("nan"))
    emulated.forward(q, k, v, causal=causal, config=TritonForwardConfig(64, 32, 4, 2), out=out)
    return out, attention_reference(q, k, v, causal=causal, fp64=True)[0]


@pytest.mark.parametrize(
    ("lengths", "causal", "dtype"),
    [((113, 70), False, DType.FP16), ((70, 113), True, DType.BF16), ((113, 50), True, DType.FP16)],
)
def test_numerics_in_the_emulator(
    lengths: tuple[int, int], causal: bool, dtype: DType, seed: int
) -> None:
    out, reference = run(64, lengths, causal, dtype, seed)
    found = compare(out, reference)
    assert found.passed, found.describe()


@pytest.mark.slow
@pytest.mark.parametrize("d_head", [32, 128, 256])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 65), (64, 64), (129, 33), (65, 200)])
@pytest.mark.parametrize("causal", [False, True])
def test_more_numerics_in_the_emulator(
    d_head: int, lengths: tuple[int, int], causal: bool, seed: int
) -> None:
    out, reference = run(d_head, lengths, causal, DType.FP16, seed)
    found = compare(out, reference)
    assert found.passed, found.describe()
