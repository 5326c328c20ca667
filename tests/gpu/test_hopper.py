"""Kernels of the Hopper family on every kind of problem that they take: lengths, the causal mask,
grouped queries, extremes; each against an fp32 reference by the row rule."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import HopperForwardKernelConfig
from tests.gpu.fp64 import truncation
from tests.gpu.hopper import SEED, built, check, draw, each, some
from tests.gpu.inputs import diagonals

pytestmark = pytest.mark.gpu

REPEATS = 1000
# (batch, query length, key length, query heads, KV heads)
LENGTHS = [
    (1, 1, 1, 1, 1), (2, 1, 203, 2, 1), (1, 63, 63, 2, 2), (1, 113, 127, 3, 1), (2, 127, 113, 2, 2),
    (1, 128, 128, 4, 4), (1, 203, 1023, 8, 1), (1, 1023, 203, 2, 1), (1, 64, 4097, 2, 2),
    (1, 4097, 63, 1, 1), (1, 4097, 4097, 2, 1), (3, 640, 200, 2, 2),
    (1, 1024, 1023, 1, 1),  # in some group of every kernel the first row's keys end with a block
]  # fmt: skip


def test_there_is_something_to_test() -> None:
    if torch.cuda.get_device_capability() == (9, 0):
        assert built(), "this build has no Hopper kernels: KERNELS=hopper"


@each
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", LENGTHS, ids=str)
def test_any_lengths(
    config: HopperForwardKernelConfig, shape: tuple[int, int, int, int, int], causal: bool
) -> None:
    check(config, *draw(config, shape), causal)


@each
def test_every_diagonal(config: HopperForwardKernelConfig) -> None:
    for q_len, k_len in diagonals(*config.blocks(), SEED):
        check(config, *draw(config, (1, q_len, k_len, 1, 1)), causal=True)


@each
@pytest.mark.parametrize("causal", [False, True])
def test_more_tiles_than_multiprocessors(config: HopperForwardKernelConfig, causal: bool) -> None:
    """Several tiles for each block, the last round not full; sections of several heads."""
    check(config, *draw(config, (3, 1023, 1151, 12, 4)), causal)


@each
@pytest.mark.parametrize("causal", [False, True])
def test_repeats_are_bitwise_equal(config: HopperForwardKernelConfig, causal: bool) -> None:
    q, k, v = draw(config, (4, 515, 643, 16, 8))
    first = flash_attention.forward(config, q, k, v, causal=causal)
    repeats = [torch.full_like(q, float("nan")) for _ in range(2)]
    for i in range(REPEATS - 1):
        o = repeats[i % 2].fill_(float("nan"))
        flash_attention.forward(config, q, k, v, o, causal=causal)
        assert bitwise_equal(o, first), f"repeat {i + 1} differs"


@some
def test_rows_that_see_no_key(config: HopperForwardKernelConfig) -> None:
    """More causal queries than keys, whole tiles of them; and no keys at all."""
    q, k, v = draw(config, (2, 700, 130, 2, 1))
    check(config, q, k, v, causal=True)
    for causal in (False, True):
        o, lse = torch.full_like(q, float("nan")), torch.full((2, 2, 700), 1.0, device="cuda")
        flash_attention.forward(config, q, k[:, :0], v[:, :0], o, lse=lse, causal=causal)
        assert bool((o == 0).all()) and bool(lse.isneginf().all())


@some
@pytest.mark.parametrize("spread", [0.01, 3.0, 30.0])
def test_flat_and_peaked_softmaxes(config: HopperForwardKernelConfig, spread: float) -> None:
    """A spread of 30 gives scores of some 10,000: a row is all but one key, maxima jump. Whole
    numbers then, whose products the tensor cores add exactly: of others they cut off what an
    exponential of such a score still sees."""
    q, k, v = draw(config, (1, 300, 517, 2, 2), spread)
    if spread == 30.0:
        for x in (q, k):
            x.round_()
    check(config, q, k, v, causal=True)


@some
def test_maxima_that_grow_from_block_to_block(config: HopperForwardKernelConfig) -> None:
    """Keys are walked from the last to the first: each block beats the one before by less than, and
    by more than, what lazy rescaling lets pass."""
    q, k, v = draw(config, (1, 200, 1500, 1, 1))
    q[:] = q[:, :1].clone()
    for steepness in (0.5, 4.0, 40.0):
        slope = torch.linspace(steepness, 0, 1500, device="cuda")[None, :, None, None]
        k[:] = torch.sign(q[:, :1]) * slope
        check(config, q, k, v, causal=False)


@some
@pytest.mark.parametrize("scale", [1e-4, 0.5, 3.0])
def test_scales(config: HopperForwardKernelConfig, scale: float) -> None:
    check(config, *draw(config, (1, 130, 260, 2, 1), 0.3), causal=False, scale=scale)


@some
def test_many_heads_and_entries(config: HopperForwardKernelConfig) -> None:
    """batch * heads above 65535, the limit of a grid's second dimension."""
    q, k, v = draw(config, (4100, 65, 33, 16, 2))
    o = flash_attention.forward(config, q, k, v, causal=True)
    for entry in (0, 2049, 4099):
        part = slice(entry, entry + 1)
        reference, _ = attention_reference(q[part], k[part], v[part], causal=True)
        outcome = compare(o[part], reference)
        assert outcome.passed, f"entry {entry}: {outcome.describe()}"


def test_more_than_2_31_elements() -> None:
    """One fp16 kernel of d 128: offsets beyond 32 bits in batch, sequence and head."""
    config = next((c for c in built() if (c.dtype, c.d_head) == (DType.FP16, 128)), None)
    if config is None or torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("needs a kernel for fp16 and d 128, and 40 GiB of free memory")
    shape = (2, 131_101, 65, 128)  # 2.2e9 elements
    q = torch.randn(shape, device="cuda", dtype=torch.float16)
    k, v = q[:, :515, :1].clone(), torch.randn_like(q[:, :515, :1])
    o = torch.full_like(q, float("nan"))
    flash_attention.forward(config, q, k, v, o)
    rows = slice(shape[1] - 300, shape[1])
    for batch, head in ((0, 0), (1, 64), (1, 0)):
        part = (slice(batch, batch + 1), rows, slice(head, head + 1))
        reference, _ = attention_reference(q[part], k[batch : batch + 1], v[batch : batch + 1])
        outcome = compare(o[part], reference)
        assert outcome.passed, f"batch {batch}, head {head}: {outcome.describe()}"
    assert not o.isnan().any()
    # And as keys and values, read from the far end of a long sequence.
    small = q[:1, :200].contiguous()
    k, v = q[1:], o[1:]
    reference, _ = attention_reference(small[:, :, :1], k[:, :, :1], v[:, :, :1])
    outcome = compare(flash_attention.forward(config, small, k, v)[:, :, :1], reference)
    # 131,101 keys of like weight, values all near 0.1: 1.5 eps measured.
    assert outcome.row_error <= outcome.tolerance + truncation(shape[1]), outcome.describe()
