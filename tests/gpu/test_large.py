"""Problems whose offsets do not fit 32 bits, and more than 65,535 heads, with every family."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_attention import dispatch
from flash_helpers.base.dtypes import DType
from flash_helpers.check.tolerance import compare
from flash_helpers.kernels.family import Family
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import FAMILIES
from tests.gpu.fp64 import many_heads, some_rows, truncation

pytestmark = pytest.mark.gpu

SESSION_SEED = int(torch.randint(2**31, ()).item())


def need_bytes(n: int) -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < n:
        pytest.skip(f"needs {n / 2**30:.0f} GiB of GPU memory, {free / 2**30:.0f} are free")


def draw(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Drawn in 16 bits: an fp32 copy of the largest would be another 8 GiB."""
    generator = torch.Generator(device="cuda").manual_seed(SESSION_SEED + shape[1])
    return torch.randn(shape, generator=generator, device="cuda", dtype=dtype)


@pytest.fixture(
    params=[family for family in FAMILIES if not family.GRADIENTS and not family.SERVES],
    ids=lambda family: family.TITLE,
)
def family(request: pytest.FixtureRequest) -> Family:
    """Each by itself: flash_attn_func would ask only the first that serves this GPU."""
    found: Family = request.param
    return found


def attend(
    family: Family,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    o: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, seqlen_q, n_heads, d_head = q.shape
    sizes = (batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head)
    problem = AttentionProblem(DType.from_torch_dtype(q.dtype), *sizes, causal=causal)
    reason = family.refusal(problem, torch.cuda.get_device_capability(q.device))
    if reason is not None:
        pytest.skip(f"the {family.TITLE} family does not serve this: {reason}")
    try:
        config = dispatch.choose_from(family, problem, q.device)
    except flash_attention.KernelNotBuiltError as error:
        pytest.skip(str(error))
    lse = torch.full(
        (q.shape[0], q.shape[2], q.shape[1]), float("nan"), device=q.device, dtype=torch.float32
    )
    return flash_attention.forward(config, q, k, v, o, causal=causal, lse=lse), lse


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_more_than_2_31_elements_in_every_tensor(family: Family, causal: bool) -> None:
    """A row of 128 heads of 128 has 2^14 elements, and there are more than 2^17 rows: the last rows
    of q, k, v and o, and of the first head alone, lie beyond 2^31."""
    print(f"seed {SESSION_SEED}")
    need_bytes(40 * 2**30)
    rows, heads = 2**17 + 69, 128
    q, k, v = (draw((1, rows, heads, 128), torch.float16) for _ in range(3))
    assert q.numel() > 2**31
    k[:, -70:] *= 4  # keys beyond 2^31 take most of the weight: reading others would show
    o, lse = attend(family, q, k, v, causal)
    chosen = [0, 1, 70_001, rows - 70, rows - 2, rows - 1]
    for head in (0, 63, 127):
        expected, expected_lse = some_rows(q, k, v, 0, head, chosen, causal)
        outcome = compare(torch.stack([o[0, row, head] for row in chosen]), expected)
        assert outcome.passed, f"head {head}: {outcome.describe()}"
        found = torch.stack([lse[0, head, row] for row in chosen])
        torch.testing.assert_close(found.double(), expected_lse, atol=1e-2, rtol=0)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_a_sequence_of_2_24_keys(family: Family, causal: bool) -> None:
    """One KV head with more than 2^31 elements, read by eight query heads."""
    need_bytes(60 * 2**30)
    n_keys = 2**24 + 3
    q = draw((1, 65, 8, 128), torch.bfloat16)
    k, v = (draw((1, n_keys, 1, 128), torch.bfloat16) for _ in range(2))
    assert k.numel() > 2**31
    k[:, -100:] *= 8
    o, lse = attend(family, q, k, v, causal)
    for head in (0, 7):
        expected, expected_lse = some_rows(q, k, v, 0, head, list(range(65)), causal)
        outcome = compare(o[0, :, head], expected)
        allowed = outcome.tolerance + truncation(n_keys)  # 0.005 + 0.06
        print(f"{family.TITLE}, head {head}: {outcome.describe()}; allowed {allowed:.3g}")
        assert outcome.row_error <= allowed, f"head {head}: {outcome.describe()}"
        torch.testing.assert_close(lse[0, head].double(), expected_lse, atol=1e-2, rtol=0)


def test_a_batch_stride_beyond_2_31(family: Family) -> None:
    """Two batch entries of every tensor, more than 2^31 elements apart in a larger one."""
    need_bytes(30 * 2**30)

    def apart(rows: int) -> torch.Tensor:
        base = torch.full((2**31 + 2**21,), float("nan"), device="cuda", dtype=torch.float16)
        return base.as_strided((2, rows, 2, 128), (2**31 + 1024, 256, 128, 1))

    q, k, v = (apart(n).copy_(draw((2, n, 2, 128), torch.float16)) for n in (203, 130, 130))
    o = apart(203)
    _, lse = attend(family, q, k, v, True, o)
    expected, expected_lse = many_heads(q, k, v, causal=True)
    outcome = compare(o, expected)
    assert outcome.passed, outcome.describe()
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-3, rtol=0)


@pytest.mark.parametrize("shape", [(1, 70, 70_000, 64), (70_000, 70, 1, 64), (300, 65, 300, 64)])
def test_more_than_65535_heads(family: Family, shape: tuple[int, int, int, int]) -> None:
    need_bytes(20 * 2**30)
    assert shape[0] * shape[2] > 65_535
    q, k, v = (draw(shape, torch.bfloat16) for _ in range(3))
    o, lse = attend(family, q, k, v, causal=True)
    axis, n = (2, shape[2]) if shape[2] >= shape[0] else (0, shape[0])
    lse_axis = 1 if axis == 2 else 0
    for first in range(0, n, 10_000 // max(1, shape[0] * shape[2] // n)):
        part = slice(first, first + 10_000 // max(1, shape[0] * shape[2] // n))
        at = (slice(None),) * axis + (part,)
        expected, expected_lse = many_heads(q[at], k[at], v[at], causal=True)
        outcome = compare(o[at].contiguous(), expected)
        assert outcome.passed, f"from {first}: {outcome.describe()}"
        found = lse[(slice(None),) * lse_axis + (part,)]
        torch.testing.assert_close(found.double(), expected_lse, atol=1e-3, rtol=0)
