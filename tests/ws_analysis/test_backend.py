"""The worker's backend with CPU tensors, and stand-ins for kernels and for counters of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import interface, library
from flash_helpers.base.dtypes import DType
from flash_helpers.check.judge import Judge
from flash_helpers.check.reference import attention_reference
from flash_helpers.kernel_configs import get_hopper_kernel_configs
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench import cuda_backend
from flash_lab.bench.measure import NotBuiltError, SkippedError, run_problem
from flash_lab.ws_analysis import resources
from flash_lab.ws_analysis.backend import WsBackend
from tests.ws_analysis.test_ranges import install, right

SHAPE: dict[str, Any] = {
    "dtype": "FP16", "batch": 1, "n_heads": 2, "n_kv_heads": 2, "seq_len": 96, "d_head": 128,
    "seed": 5, "causal": False,
}  # fmt: skip
ATTRIBUTES = {
    "registers": 168, "static_shared_bytes": 16, "dynamic_shared_bytes": 200_000, "local_bytes": 8,
    "max_threads_per_block": 384, "blocks_per_multiprocessor": 1, "binary_version": 90,
    "ptx_version": 90,
}  # fmt: skip


class CpuBackend(WsBackend):
    """As on a GPU, but for where the tensors lie."""

    def __init__(self) -> None:
        self._state = {"gpu_sms": 132, "compute_capability": "9.0"}
        self._inputs = None
        self._ceiling_shape = None

    def prepare(self, shape: dict[str, Any]) -> None:
        problem = AttentionProblem.self_attention(DType.FP16, 1, shape["seq_len"], 2, 128)
        judge = Judge(problem.tensors(5, "cpu"))
        self._inputs = cuda_backend.Inputs(shape, judge, judge.poisoned())


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[CpuBackend]:
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    names = sorted(config.kernel_name() for config in get_hopper_kernel_configs())
    built = SimpleNamespace(
        kernel_names=lambda: names, kernel_set=lambda: "hopper",
        kernel_attributes=lambda kernel, device, variant: ATTRIBUTES,
        variants=lambda kernel: ["any"],
    )  # fmt: skip
    for module in (interface, library):
        monkeypatch.setattr(module, "load_library", lambda: built)
    interface.kernel_ids.cache_clear()
    monkeypatch.setattr(flash_attention, "available_kernels", get_hopper_kernel_configs)

    def forward(config: Any, q: Any, k: Any, v: Any, o: Any, *, causal: bool) -> torch.Tensor:
        assert config.ping_pong is not None
        output: torch.Tensor = o.copy_(attention_reference(q, k, v, causal=causal)[0])
        return output

    monkeypatch.setattr(flash_attention, "forward", forward)
    found = CpuBackend()
    found.prepare(SHAPE)
    yield found
    interface.kernel_ids.cache_clear()


@pytest.mark.parametrize(("provider", "ping_pong"), [("cuda-ws-fp16", 0), ("cuda-ws-pp-fp16", 1)])
def test_our_kernels(provider: str, ping_pong: int, backend: CpuBackend) -> None:
    candidate = backend.candidate(provider, provider)
    assert candidate.check() == ""
    row = candidate.describe()
    assert row["label"] == provider
    assert ("pingpong" in row["configuration"]) == bool(ping_pong)
    assert row["parameters"]["BLOCK_N"] in (64, 80, 128)
    assert (row["registers"], row["spilled_bytes"], row["blocks_per_sm"]) == (168, 8, 1)
    assert row["shared_bytes"] == 200_016
    assert row["threads"] in (384, 512)
    inputs = 3 * 96 * 2 * 128 * 2
    spilled = 8 * row["threads"] * 132
    assert row["memory_bytes"] == inputs + inputs // 3 + spilled


def test_gluon_kernels(backend: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install(monkeypatch, right)
    monkeypatch.setattr(resources, "of_gluon", lambda *_, ping_pong: {"registers": 100 + ping_pong})
    for provider, registers in (("triton-ws-fp16", 100), ("triton-ws-pp-fp16", 101)):
        candidate = backend.candidate(provider, provider)
        assert candidate.check() == ""
        row = candidate.describe()
        assert (row["label"], row["registers"]) == (provider, registers)
        assert row["parameters"]["num_warps"] == 4
        assert row["memory_bytes"] == 4 * 96 * 2 * 128 * 2
    assert asked == ["best False", "best True"]


def test_a_kernel_that_writes_nothing_is_wrong(
    backend: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, lambda *_, out, **__: out)
    monkeypatch.setattr(resources, "of_gluon", lambda *_, ping_pong: {})
    assert "rows are wrong" in backend.candidate("triton-ws-fp16", "triton-ws-fp16").check()


def test_without_triton_the_row_says_so(
    backend: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "flash_attention.gluon", None)
    events: list[dict[str, Any]] = []
    item = {"provider": "triton-ws-fp16", "kernel": "triton-ws-fp16"}
    policy = {"warmups": 0, "repeats": 2, "cold_l2": True}
    run_problem(
        {"shape": SHAPE, "policy": policy, "candidates": [item]}, backend,
        lambda event: events.append(dict(event)),
    )  # fmt: skip
    assert events[-1]["status"] == "skipped"
    assert "flash_attention.gluon cannot be used" in events[-1]["error"]


def test_a_build_without_the_kernel(backend: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_attention, "available_kernels", list)
    on_cpu = [config for config in get_hopper_kernel_configs() if config.ping_pong]
    monkeypatch.setattr("flash_lab.ws_analysis.providers.known_configs", lambda: on_cpu)
    with pytest.raises(SkippedError, match="without ping-pong for FP16 and head dimension 128"):
        backend.candidate("cuda-ws-fp16", "cuda-ws-fp16")


def test_no_build_at_all(backend: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from flash_lab.ws_analysis import providers

    def absent() -> None:
        raise flash_attention.LibraryNotFoundError("flash_attention._C is not built")

    monkeypatch.setattr(flash_attention, "available_kernels", absent)
    gpu: Any = SimpleNamespace(type="cuda")
    with pytest.raises(NotBuiltError, match="is not built"):
        providers.cuda_config(
            providers.WS_PROVIDERS["cuda-ws-fp16"], torch.float16, 128, 128, False, gpu
        )


def test_what_the_build_lacks_is_compiled_on_first_use(
    backend: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the build is taken wherever it has one."""
    from flash_lab.ws_analysis import providers

    wanted = providers.WS_PROVIDERS["cuda-ws-pp-fp16"]
    possible = [c for c in get_hopper_kernel_configs() if c.ping_pong and c.d_head == 128]
    built: list[Any] = []
    monkeypatch.setattr(
        flash_attention, "available_kernels",
        lambda on_first_use=False: possible if on_first_use else built,
    )  # fmt: skip
    gpu = SimpleNamespace(type="cuda")

    def found() -> Any:
        return providers.cuda_config(wanted, torch.float16, 128, 96, False, gpu)[0]  # type: ignore[arg-type]

    assert found() in possible
    built.append(next(c for c in possible if c.dtype is DType.FP16 and c != found()))
    assert found() == built[0]
