"""Kernels for single blocks that will start in clusters, without what Triton compiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.operators.row_softmax.calls import CLUSTER
from flash_attention.operators.rows.op import row_call
from flash_attention.triton_kit import clusters
from flash_attention.triton_kit.clusters import make_clustered


class Driver:
    def __init__(self, status: int = 0) -> None:
        self.allowed: list[tuple[int, int, int]] = []
        self.status = status

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.allowed.append((function.value, attribute, value))
        return self.status


def kernel() -> tuple[Any, Any]:
    """(what is called, what Triton compiles of it)."""
    compiled = SimpleNamespace(run=None, function=22, packed_metadata=(4, 1, 1024))

    def warmup(*arguments: Any, grid: tuple[int, ...], **options: Any) -> Any:
        assert (arguments, grid, options) == ((5, 6), (1,), {"BLOCK": 8})
        return compiled

    return SimpleNamespace(warmup=warmup), compiled


def test_of_so_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than eight must be allowed, once."""
    driver = Driver()
    monkeypatch.setattr(clusters, "driver", lambda: driver)
    for blocks, allowed in ((8, []), (9, [(22, 14, 1)])):
        jitted, compiled = kernel()
        for _ in range(2):
            make_clustered(jitted, (5, 6), {"BLOCK": 8}, blocks)
            assert compiled.packed_metadata == (4, blocks, 1024)
        assert driver.allowed == allowed


def test_a_driver_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "driver", lambda: Driver(1))
    jitted, compiled = kernel()
    with pytest.raises(RuntimeError, match="cuFuncSetAttribute returned 1: no clusters of more"):
        make_clustered(jitted, (5, 6), {"BLOCK": 8}, 16)
    assert compiled.packed_metadata == (4, 1, 1024)


def test_recorded_calls_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(2, 20_480)
    call = row_call(2, 20_480, (x, x), (x, x), LOG=False, ONLINE=True)
    assert not CLUSTER.is_faster(call, x)
    with pytest.raises(NotImplementedError, match="cannot record its clusters"):
        CLUSTER.launch(CLUSTER.default(call), call, (x, x))
