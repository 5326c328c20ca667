"""DTensor: every rank computes its share of the batch or of the heads, without communication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding  # noqa: F401
    from torch.testing._internal.distributed.fake_pg import FakeStore
except ImportError:
    pytest.skip("this torch is too old for it", allow_module_level=True)

from .ways import Qkv, attend, eager_gradients


@contextmanager
def ranks(rank: int, *mesh: int) -> Iterator[DeviceMesh]:
    """This process as one of many, whose communication does nothing."""
    size = torch.Size(mesh).numel()
    store: Any = FakeStore()
    dist.init_process_group("fake", store=store, rank=rank, world_size=size)
    try:
        yield init_device_mesh("cpu", mesh)
    finally:
        dist.destroy_process_group()


def draw(batch: int, heads: int, kv_heads: int) -> Qkv:
    q, k, v = (
        torch.randn((batch, 40, n, 64), dtype=torch.float16) for n in (heads, kv_heads, kv_heads)
    )
    return q, k, v


def shard(x: Tensor, mesh: DeviceMesh, *placements: Any) -> DTensor:
    made: DTensor = DTensor.from_local(x, mesh, placements, run_check=False)
    return made


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_computes_its_own(rank: int, dim: int) -> None:
    qkv = draw(2, 4, 2)
    shares = [x.chunk(2, dim)[rank].clone().requires_grad_() for x in qkv]
    with ranks(rank, 2) as mesh:
        o: Any = attend(*(shard(x, mesh, Shard(dim)) for x in shares))
        assert o.placements == (Shard(dim),)
        assert torch.equal(o.to_local(), attend(*qkv).chunk(2, dim)[rank])
        o.float().square().sum().backward()
        inputs = [shard(x, mesh, Shard(dim)) for x in shares]  # PyTorch 2.6 makes none in the mode
        with torch.inference_mode():
            again: Any = attend(*inputs)
            assert again.placements == (Shard(dim),)
    for share, expected in zip(shares, eager_gradients(*qkv), strict=True):
        assert share.grad is not None
        assert torch.equal(share.grad, expected.chunk(2, dim)[rank])


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_heads_that_cannot_be_divided_are_not(kv_heads: int) -> None:
    """A query head would read another KV head than its own."""
    q, k, v = draw(1, 2 * kv_heads, kv_heads)
    with ranks(0, 2) as mesh:
        share = shard(q.chunk(2, 2)[0], mesh, Shard(2))
        o: Any = attend(share, *(shard(x, mesh, Replicate()) for x in (k, v)))
        assert o.placements == (Replicate(),)
        assert o.shape == q.shape


def test_a_length_that_is_sharded_is_gathered() -> None:
    with ranks(0, 2) as mesh:
        o: Any = attend(*(shard(x, mesh, Shard(1)) for x in draw(1, 1, 1)))
        assert o.placements == (Replicate(),)
        assert o.shape == (1, 80, 1, 64)


def test_a_mesh_of_two_dimensions_shards_both() -> None:
    qkv = draw(2, 4, 4)
    with ranks(0, 2, 4) as mesh:
        shares = [x.chunk(2, 0)[0].chunk(4, 2)[0] for x in qkv]
        made: Any = [
            DTensor.from_local(x, mesh, [Shard(0), Shard(2)], run_check=False) for x in shares
        ]
        o: Any = attend(*made)
        assert o.placements == (Shard(0), Shard(2))
        assert torch.equal(o.to_local(), attend(*qkv).chunk(2, 0)[0].chunk(4, 2)[0])


def test_a_compiled_function_shards_as_well() -> None:
    torch._dynamo.reset()
    qkv = draw(2, 2, 2)
    with ranks(1, 2) as mesh:
        whole = torch.compile(attend, backend="aot_eager", fullgraph=True)
        o: Any = whole(*(shard(x.chunk(2, 0)[1], mesh, Shard(0)) for x in qkv))
        assert o.placements == (Shard(0),)
        assert torch.equal(o.to_local(), attend(*qkv).chunk(2, 0)[1])
