"""How a kernel is launched: layouts, streams, graphs, devices, host cost; and that a refusal harms
nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import flash_attention
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from flash_helpers.kernel_configs import DType, KernelConfig
from flash_helpers.kernels.registry import families
from tests.gpu.inputs import forward_kernels
from tests.gpu.times import HOST_BAR, has_plausible_unit, host_cost

pytestmark = pytest.mark.gpu

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(
    params=[family.NAME for family in families() if not (family.GRADIENTS or family.SERVES)]
)
def config(request: pytest.FixtureRequest) -> KernelConfig:
    """Some built fp16 kernel of each family of forward passes."""
    found = [c for c in forward_kernels() if (c.dtype, c.FAMILY) == (DType.FP16, request.param)]
    if not found:
        pytest.skip(f"this build has no fp16 kernels of {request.param}")
    return found[0]


def draw(config: KernelConfig, batch: int = 2, seq: int = 512, heads: int = 4) -> Tensors:
    shape = (batch, seq, heads, config.d_head)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    return q, k, v


def check(o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    reference, _ = attention_reference(q, k, v)
    outcome = compare(o, reference)
    assert outcome.passed, outcome.describe()


def head_major(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def sequence_major(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def padded_rows(x: torch.Tensor) -> torch.Tensor:
    wide = torch.full((*x.shape[:3], x.shape[3] + 8), float("nan"), device=x.device, dtype=x.dtype)
    wide[..., : x.shape[3]] = x
    return wide[..., : x.shape[3]]


@pytest.mark.parametrize("layout", [head_major, sequence_major, padded_rows])
@pytest.mark.parametrize("which", range(4), ids=list("qkvo"))
def test_every_tensor_has_strides_of_its_own(
    config: KernelConfig, layout: Callable[[torch.Tensor], torch.Tensor], which: int
) -> None:
    tensors = [*draw(config), torch.full((2, 512, 4, config.d_head), float("nan"))]
    tensors[3] = tensors[3].to("cuda", torch.float16)
    tensors[which] = layout(tensors[which])
    q, k, v, o = tensors
    check(flash_attention.forward(config, q, k, v, o), q, k, v)


def test_packed_qkv_views(config: KernelConfig) -> None:
    packed = torch.randn(2, 512, 3, 4, config.d_head, device="cuda", dtype=torch.float16)
    q, k, v = packed.unbind(2)
    check(flash_attention.forward(config, q, k, v), q, k, v)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_queries_and_other_key_lengths(config: KernelConfig, kv_heads: int) -> None:
    q, _, _ = draw(config, seq=256)
    _, k, v = draw(config, seq=1024, heads=kv_heads)
    check(flash_attention.forward(config, q, k, v), q, k, v)


def test_the_current_stream_is_used(config: KernelConfig) -> None:
    q, k, v = draw(config)
    expected = flash_attention.forward(config, q * 2, k, v)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]
        q.mul_(2)
        o = flash_attention.forward(config, q, k, v)
    side.synchronize()
    assert bitwise_equal(o, expected)


def test_a_graph_replays_with_new_inputs(config: KernelConfig) -> None:
    """The first call of all is inside the capture: setting attributes must not break it."""
    q, k, v = draw(config)
    o = torch.empty_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        flash_attention.forward(config, q, k, v, o)
    for _ in range(2):
        for x in (q, k, v):
            x.copy_(torch.randn_like(x))
        o.fill_(float("nan"))
        graph.replay()
        assert bitwise_equal(o, flash_attention.forward(config, q, k, v))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_the_tensors_device_is_used_and_the_current_one_kept(
    config: KernelConfig,
) -> None:
    tensors = [x.to("cuda:1") for x in draw(config)]
    q, k, v = tensors
    o = flash_attention.forward(config, q, k, v)
    assert torch.cuda.current_device() == 0
    check(o, q, k, v)


def test_threads(config: KernelConfig) -> None:
    q, k, v = draw(config)
    expected = flash_attention.forward(config, q, k, v)
    wrong: list[int] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            for i in range(50):
                if not bitwise_equal(flash_attention.forward(config, q, k, v), expected):
                    wrong.append(i)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_refusal_leaves_the_process_healthy(config: KernelConfig) -> None:
    q, k, v = draw(config)
    expected = flash_attention.forward(config, q, k, v)
    with pytest.raises(ValueError, match=r"q has dtype torch.float32"):
        flash_attention.forward(config, q.float(), k, v, torch.empty_like(q))
    with pytest.raises(ValueError, match="aligned to 16 bytes"):
        shifted = torch.empty(q.numel() + 1, device="cuda", dtype=q.dtype)[1:].view(q.shape)
        flash_attention.forward(config, shifted, k, v)
    with pytest.raises(ValueError, match="k is on cpu"):
        flash_attention.forward(config, q, k.cpu(), v)
    assert bitwise_equal(flash_attention.forward(config, q, k, v), expected)


def test_nothing_leaks(config: KernelConfig) -> None:
    q, k, v = draw(config)
    flash_attention.forward(config, q, k, v)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(2000):
        flash_attention.forward(config, q, k, v)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_forward_timed_measures_the_kernel(config: KernelConfig) -> None:
    q, k, v = draw(config, batch=8, seq=2048, heads=16)
    flash_attention.forward(config, q, k, v)
    o, ms = flash_attention.forward_timed(config, q, k, v)
    check(o[:1], q[:1], k[:1], v[:1])
    assert has_plausible_unit(ms, lambda: flash_attention.forward(config, q, k, v))


def test_a_call_costs_the_host_less_than_pytorch_s(config: KernelConfig) -> None:
    shape = (1, config.blocks()[0], 1, config.d_head)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    cost = host_cost(lambda: flash_attention.forward(config, q, k, v), q, k, v)
    print(cost)
    assert cost.ratio <= HOST_BAR, str(cost)
