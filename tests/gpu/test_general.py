"""Every general kernel of the build: any lengths, causal, grouped heads, strides, rows that see
nothing, against fp64; margins and bitwise repeats."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_attention.library import load_library
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import FlashForwardKernelConfig
from flash_helpers.kernels.contract import Variant
from tests.gpu.inputs import diagonals, guarded
from tests.guarded import margins_ok

pytestmark = pytest.mark.gpu

SESSION_SEED = int(torch.randint(2**31, ()).item())
# (query length, key length)
SHAPES = (
    (1, 1), (1, 4097), (63, 63), (113, 203), (203, 113), (127, 128), (256, 127), (1023, 1023),
    (1024, 1023), (1023, 4097), (4097, 1023), (512, 512),
)  # fmt: skip
REPEATS = 1000


def general() -> list[FlashForwardKernelConfig]:
    """Nothing without a GPU; with one, a library that is missing or refused is an error."""
    if not torch.cuda.is_available():
        return []
    built = enumerate(flash_attention.available_kernels())
    return [
        config
        for i, config in built
        if isinstance(config, FlashForwardKernelConfig) and "any" in load_library().variants(i)
    ]


def of_each_kind() -> list[FlashForwardKernelConfig]:
    """One kernel of each dtype, head size and block shape."""
    return list({(c.dtype, c.d_head, c.B_r, c.B_c, c.n_warps): c for c in general()}.values())


def ids(config: FlashForwardKernelConfig) -> str:
    return config.symbol(Variant.ANY)


def draw(
    config: FlashForwardKernelConfig, q_len: int, k_len: int, heads: int = 2, kv_heads: int = 2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(SESSION_SEED + 5000 * q_len + k_len)
    dtype = config.dtype.to_torch_dtype()

    def one(length: int, n: int) -> torch.Tensor:
        shape = (2, length, n, config.d_head)
        return guarded(shape, dtype, torch.randn(shape, generator=generator, device="cuda"))

    return one(q_len, heads), one(k_len, kv_heads), one(k_len, kv_heads)


def check(
    config: FlashForwardKernelConfig,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    causal: bool,
) -> torch.Tensor:
    q, k, v = tensors
    o = guarded(tuple(q.shape), q.dtype)
    lse = guarded((q.shape[0], q.shape[2], q.shape[1]), torch.float32)
    flash_attention.forward(config, q, k, v, o, lse=lse, causal=causal)
    reference, reference_lse = attention_reference(q, k, v, fp64=True, causal=causal)
    outcome = compare(o, reference)
    about = f"{config}, q {tuple(q.shape)}, k {tuple(k.shape)}, causal {causal}"
    assert outcome.passed, f"{about}: {outcome.describe()}"
    assert margins_ok(o) and margins_ok(lse), f"{about}: something was written beyond the output"
    bound = 1e-3 * max(1.0, float(reference_lse.masked_fill(~reference_lse.isfinite(), 0).max()))
    torch.testing.assert_close(lse.double(), reference_lse, atol=bound, rtol=0, msg=about)
    return o


def test_there_are_general_kernels() -> None:
    assert general(), "this build has none: KERNELS=tune, d64 or all"


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("config", general(), ids=ids)
def test_lengths(config: FlashForwardKernelConfig, causal: bool) -> None:
    print(f"seed {SESSION_SEED}")
    for q_len, k_len in SHAPES:
        check(config, draw(config, q_len, k_len), causal)


@pytest.mark.parametrize("config", of_each_kind(), ids=ids)
def test_every_diagonal(config: FlashForwardKernelConfig) -> None:
    print(f"seed {SESSION_SEED}")
    for q_len, k_len in diagonals(*config.blocks(), SESSION_SEED):
        check(config, draw(config, q_len, k_len), causal=True)


@pytest.mark.parametrize("config", of_each_kind(), ids=ids)
def test_grouped_heads_and_strides(config: FlashForwardKernelConfig) -> None:
    for causal in (False, True):
        for kv_heads in (1, 2):
            check(config, draw(config, 203, 339, 8, kv_heads), causal)
        dtype, d_head = config.dtype.to_torch_dtype(), config.d_head
        packed = torch.randn(2, 203, 3, 4, d_head, device="cuda").to(dtype).unbind(2)
        check(config, (packed[0], packed[1], packed[2]), causal)
        wide = torch.full((3, 2, 4, 203, d_head + 8), float("nan"), device="cuda", dtype=dtype)
        wide[..., :d_head] = torch.randn(3, 2, 4, 203, d_head, device="cuda").to(dtype)
        padded = wide[..., :d_head].transpose(2, 3)
        check(config, (padded[0], padded[1], padded[2]), causal)


@pytest.mark.parametrize("factor", [30.0, 1e-3])
def test_large_and_small_logits(factor: float) -> None:
    for config in of_each_kind():
        for causal in (False, True):
            q, k, v = draw(config, 203, 1023)
            check(config, ((q.float() * factor).to(q.dtype), k, v), causal)


@pytest.mark.parametrize("config", of_each_kind(), ids=ids)
def test_rows_that_see_nothing(config: FlashForwardKernelConfig) -> None:
    """Blocks of blind rows, blind rows beside others, no keys at all; NaN values do not matter."""
    o = check(config, draw(config, 600, 77), causal=True)
    assert not o[:, : 600 - 77].any()
    q, k, v = draw(config, 600, 77)
    v.fill_(float("nan"))
    assert not flash_attention.forward(config, q, k, v, causal=True)[:, : 600 - 77].any()
    for causal in (False, True):
        q, _, _ = draw(config, 200, 1)
        empty = torch.empty(2, 0, 2, config.d_head, device="cuda", dtype=q.dtype)
        assert not check(config, (q, empty, empty), causal).any()


@pytest.mark.parametrize("config", of_each_kind(), ids=ids)
def test_repeats_are_bitwise_equal(config: FlashForwardKernelConfig) -> None:
    q, k, v = draw(config, 1023, 1151, heads=16, kv_heads=2)
    first = flash_attention.forward(config, q, k, v, causal=True)
    outputs = [torch.full_like(q, float("nan")) for _ in range(2)]
    for i in range(REPEATS - 1):
        o = outputs[i % 2].fill_(float("nan"))
        flash_attention.forward(config, q, k, v, o, causal=True)
        assert bitwise_equal(o, first), f"repeat {i + 1} differs"


@pytest.mark.parametrize("config", general(), ids=ids)
def test_none_uses_local_memory(config: FlashForwardKernelConfig) -> None:
    """The driver's word on spills, beside ptxas'."""
    kernel_id = load_library().kernel_names().index(config.kernel_name())
    for variant in load_library().variants(kernel_id):
        found = load_library().kernel_attributes(kernel_id, 0, variant)
        assert found["local_bytes"] == 0, f"{variant}: {found}"


def test_queries_that_see_everything_get_the_bits_of_no_mask() -> None:
    """The general kernel against the other, on the same scores."""
    for config in of_each_kind():
        q, k, v = draw(config, 512, 1024)
        whole = flash_attention.forward(config, q, k, v)
        for row in (0, 511):
            one = q[:, row : row + 1].contiguous()
            o = flash_attention.forward(config, one, k, v, causal=True)
            assert bitwise_equal(o, whole[:, row : row + 1].contiguous()), f"{config}, row {row}"
