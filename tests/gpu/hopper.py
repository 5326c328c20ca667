"""What the GPU tests of the Hopper family share: its built kernels, problems in poisoned memory,
and the check of a result."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare
from flash_helpers.kernel_configs import HopperForwardKernelConfig
from tests.gpu.inputs import guarded
from tests.guarded import margins_ok

SEED = int(torch.randint(2**31, ()).item())

Qkv = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def built() -> list[HopperForwardKernelConfig]:
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        return []
    kernels = flash_attention.available_kernels()
    return [config for config in kernels if isinstance(config, HopperForwardKernelConfig)]


def ids(config: HopperForwardKernelConfig) -> str:
    return config.kernel_name()


def one_for_each_shape() -> list[HopperForwardKernelConfig]:
    """Of each dtype, head dimension and number of groups."""
    return list({(c.dtype, c.d_head, c.n_mma_groups): c for c in built()}.values())


each = pytest.mark.parametrize("config", built(), ids=ids)
some = pytest.mark.parametrize("config", one_for_each_shape(), ids=ids)


def draw(
    config: HopperForwardKernelConfig, shape: tuple[int, int, int, int, int], spread: float = 1.0
) -> Qkv:
    """Tensors inside NaN: what is read beyond them shows."""
    print(f"seed {SEED}, shape {shape}")
    batch, q_len, k_len, heads, kv_heads = shape
    generator = torch.Generator(device="cuda").manual_seed(SEED)
    dtype = config.dtype.to_torch_dtype()

    def one(length: int, n: int) -> torch.Tensor:
        size = (batch, length, n, config.d_head)
        return guarded(size, dtype, torch.randn(size, generator=generator, device="cuda") * spread)

    return one(q_len, heads), one(k_len, kv_heads), one(k_len, kv_heads)


def check(
    config: HopperForwardKernelConfig, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    causal: bool, scale: float | None = None,
) -> None:  # fmt: skip
    """Output, log-sum-exp, untouched surroundings."""
    o = guarded(tuple(q.shape), q.dtype)
    lse = guarded((q.shape[0], q.shape[2], q.shape[1]), torch.float32)
    flash_attention.forward(config, q, k, v, o, lse=lse, causal=causal, softmax_scale=scale)
    reference, reference_lse = attention_reference(q, k, v, scale, causal=causal, fp64=True)
    outcome = compare(o, reference)
    assert outcome.passed, outcome.describe()
    blind = reference_lse.isneginf()
    assert torch.equal(lse.isneginf(), blind)
    torch.testing.assert_close(lse[~blind].double(), reference_lse[~blind], rtol=1e-5, atol=2e-5)
    assert bool((o.transpose(1, 2)[blind] == 0).all())
    assert margins_ok(o) and margins_ok(lse)
