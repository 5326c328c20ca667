"""forward() on CPU tensors with kernels of the Hopper family: their PTX in the emulator, whose race
detector and copy engine watch, against an fp32 reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import flash_attention
from flash_attention import dispatch, emulated
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import (
    HopperForwardKernelConfig,
    get_hopper_kernel_configs,
    get_hopper_smoke_kernel_configs,
    parse_kernel_name_into_config,
)
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.sm90_fwd.config import MaxPolicy

from ..guarded import guarded
from . import tensors

NAN = float("nan")
Shape = tuple[int, int, int, int, int]  # batch, query and key lengths, query and KV heads

# More tiles than blocks, lengths that are multiples of nothing, grouped queries; rows without keys;
# no keys; and one query.
PROBLEMS: tuple[tuple[Shape, bool], ...] = (
    ((2, 203, 327, 4, 2), False),
    ((1, 203, 327, 2, 1), True),
    ((1, 327, 113, 2, 2), True),
    ((1, 130, 0, 2, 1), False),
    ((1, 1, 203, 2, 1), True),
)


def small() -> HopperForwardKernelConfig:
    """Compiles in a quarter of the time that the tuned kernels take."""
    config = parse_kernel_name_into_config("(FP16, 64, 128, 64, 2, 2, 1): hopper+lazy+overlap")
    assert isinstance(config, HopperForwardKernelConfig)
    return config


def draw(
    config: HopperForwardKernelConfig, shape: Shape, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, q_len, k_len, heads, kv_heads = shape
    q_shape, k_shape = (batch, q_len, heads, config.d_head), (batch, k_len, kv_heads, config.d_head)
    return tensors.draw(seed, config.dtype.to_torch_dtype(), q_shape, k_shape)


def check(config: HopperForwardKernelConfig, shape: Shape, causal: bool, seed: int) -> torch.Tensor:
    q, k, v = draw(config, shape, seed)
    o = guarded(tuple(q.shape), q.dtype)
    lse = guarded((q.shape[0], q.shape[2], q.shape[1]), torch.float32)
    flash_attention.forward(config, q, k, v, o, lse=lse, causal=causal)
    reference, reference_lse = attention_reference(q, k, v, causal=causal)
    outcome = compare(o, reference)
    assert outcome.passed, outcome.describe()
    torch.testing.assert_close(lse, reference_lse, rtol=0, atol=1e-3)
    return o


@pytest.mark.parametrize(("shape", "causal"), PROBLEMS, ids=str)
def test_problems_of_every_kind(shape: Shape, causal: bool, seed: int) -> None:
    check(small(), shape, causal, seed)


def test_strides_of_every_tensor(seed: int) -> None:
    """Packed, transposed, shared by the batch; rows further apart than they are long."""
    config = small()
    q, k, v = draw(config, (2, 130, 70, 2, 2), seed)
    expected = flash_attention.forward(config, q, k, v)
    packed = torch.full((2, 70, 2, 2, 72), NAN, dtype=q.dtype)[..., :64]
    packed[:, :, 0], packed[:, :, 1] = k, v
    q_transposed = q.transpose(1, 2).contiguous().transpose(1, 2)
    o = torch.full((2, 2, 130, 64), NAN, dtype=q.dtype).transpose(1, 2)
    flash_attention.forward(config, q_transposed, packed[:, :, 0], packed[:, :, 1], o)
    assert bitwise_equal(o.contiguous(), expected)
    shared = k[:1].expand(2, -1, -1, -1)
    o = flash_attention.forward(config, q, shared, shared)
    outcome = compare(o, attention_reference(q, shared, shared)[0])
    assert outcome.passed, outcome.describe()


def test_how_many_blocks_share_the_tiles_changes_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = []
    for blocks in (1, 2, 1000):
        monkeypatch.setattr(emulated, "EMULATED_MULTIPROCESSORS", blocks)
        outputs.append(check(small(), (1, 260, 130, 2, 1), True, seed))
    assert all(bitwise_equal(o, outputs[0]) for o in outputs)


@pytest.mark.parametrize("scale", [0.0, -0.0, 1e-60, -1e-60, -0.125, -2.0])
def test_a_scale_that_is_not_positive(scale: float, seed: int) -> None:
    """0 and what is as good: the mean of v. A negative one: q is left as it is."""
    q, k, v = draw(small(), (1, 70, 130, 2, 1), seed)
    before, lse = q.clone(), torch.empty((1, 2, 70))
    o = flash_attention.forward(small(), q, k, v, softmax_scale=scale, causal=True, lse=lse)
    reference, reference_lse = attention_reference(q, k, v, scale, causal=True, fp64=True)
    assert compare(o, reference).passed and bitwise_equal(q, before)
    torch.testing.assert_close(lse.double(), reference_lse, atol=2e-5, rtol=1e-5)


def test_flash_attn_func_on_the_cpu_for_head_dimensions_of_this_family_alone() -> None:
    for d_head in (64, 96, 128, 192, 256):
        problem = AttentionProblem(DType.FP16, 1, 70, 130, 1, 1, d_head, causal=True)
        chosen = dispatch.choose(problem, torch.device("cpu"))
        assert chosen.d_head == d_head
        assert isinstance(chosen, HopperForwardKernelConfig) is (d_head not in (64, 128))


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(MaxPolicy), ids=lambda p: p.name)
@pytest.mark.parametrize("ping_pong", [False, True])
@pytest.mark.parametrize("n_mma_groups", [2, 3])
def test_every_option(policy: MaxPolicy, ping_pong: bool, n_mma_groups: int, seed: int) -> None:
    config = replace(
        small(), max_policy=policy, ping_pong=ping_pong, n_mma_groups=n_mma_groups,
        n_q_buffers=2 if ping_pong else 1, n_buffers=1,
    )  # fmt: skip
    for shape, causal in PROBLEMS:
        check(config, shape, causal, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    sorted({*get_hopper_kernel_configs(), *get_hopper_smoke_kernel_configs()}),
    ids=lambda config: config.kernel_name(),
)
def test_the_sets(config: HopperForwardKernelConfig, seed: int) -> None:
    for shape, causal in PROBLEMS[1:3]:
        check(config, shape, causal, seed)
