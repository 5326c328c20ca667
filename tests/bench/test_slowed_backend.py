"""The backend of the gate without a GPU: CUDA's calls stubbed out, the kernel in the emulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from flash_attention import interface, library
from flash_helpers.base.timing import Policy, Sample
from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench import cuda_backend
from flash_lab.bench.measure import NotBuiltError, run_problem
from tests.acceptance.slowed_backend import SlowedBackend

CONFIG = get_kernel_configs("prog")[-1]
KERNEL = CONFIG.short_form()
SHAPE = {
    "batch": 2, "n_heads": 1, "n_kv_heads": 1, "seq_len": 128, "d_head": 128, "dtype": "FP16",
    "seed": 1, "causal": False, "kv_len": 64, "slowed_kv_len": 128,
}  # fmt: skip


class Library:
    def kernel_names(self) -> list[str]:
        return [CONFIG.kernel_name()]

    def variants(self, kernel_id: int) -> list[str]:
        return ["whole"]

    def kernel_attributes(self, kernel_id: int, device: int, variant: str) -> dict[str, int]:
        return {
            "registers": 200, "local_bytes": 8, "blocks_per_multiprocessor": 2,
            "static_shared_bytes": 0, "dynamic_shared_bytes": 32768,
        }  # fmt: skip


class OnCpu(SlowedBackend):
    """Remembers how many keys every timed call had."""

    def timer(self, policy: Policy) -> Callable[[Callable[[], object]], Sample]:
        def timer(function: Any) -> Sample:
            began = time.monotonic()
            function()
            lengths.append(function.inputs.tensors[1].shape[1])
            return Sample((time.monotonic() - began) * 1e3, 1900.0, began, time.monotonic())

        return timer

    def clock_under(self, function: Callable[[], object], call_ms: float) -> float | None:
        return None


lengths: list[int] = []


def collect(events: list[dict[str, Any]]) -> Callable[[Mapping[str, object]], None]:
    def emit(event: Mapping[str, object]) -> None:
        events.append(dict(event))

    return emit


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    draw = AttentionProblem.tensors
    monkeypatch.setattr(
        AttentionProblem, "tensors", lambda self, seed, device: draw(self, seed, "cpu")
    )
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5000)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    state = {"gpu_sms": 132, "compute_capability": "9.0", "top_sm_clock": "1980 MHz"}
    monkeypatch.setattr(cuda_backend, "device_state", lambda: state)
    monkeypatch.setattr(cuda_backend, "library_state", dict)
    monkeypatch.setattr(library, "load_library", Library)
    monkeypatch.setattr(interface, "load_library", lambda: library.load_library())
    interface.kernel_ids.cache_clear()
    yield
    interface.kernel_ids.cache_clear()


@pytest.mark.usefixtures("no_gpu")
def test_the_slowed_kernel_gets_more_keys_and_is_checked_on_them() -> None:
    backend = OnCpu()
    policy = {"warmups": 0, "repeats": 2, "cold_l2": False}
    found: dict[str, dict[str, Any]] = {}
    for slowed, length in (("", 64), (KERNEL, 128)):
        lengths.clear()
        events: list[dict[str, Any]] = []
        request = {
            "shape": {**SHAPE, "slowed_kernel": slowed}, "policy": policy,
            "candidates": [{"provider": "ours", "kernel": KERNEL}],
        }  # fmt: skip
        run_problem(request, backend, collect(events))
        (found[slowed],) = [event for event in events if event["event"] == "result"]
        assert lengths == [length] * 2
        assert found[slowed]["status"] == "ok", found[slowed]["error"]
    assert found[""]["note"] == "" and found[KERNEL]["note"] == "slowed on purpose: 128 keys"
    # Q, O and what was allocated; local memory of all threads that fit; then K and V of 64 rows.
    spilled = 8 * 2 * CONFIG.n_threads() * 132
    q = 2 * 128 * 128 * 2
    assert found[""]["memory_bytes"] == 2 * q + 4000 + spilled + q
    assert found[KERNEL]["memory_bytes"] == 2 * q + 4000 + spilled + 2 * q


@pytest.mark.usefixtures("no_gpu")
def test_a_slowed_kernel_that_leaves_the_added_keys_out_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = OnCpu()
    backend.prepare({**SHAPE, "slowed_kernel": KERNEL})
    assert backend.candidate("ours", KERNEL).check() == ""
    fewer, all_keys = (backend.by_length[length].judge for length in (64, 128))
    monkeypatch.setattr(fewer, "compare", all_keys.compare)
    backend.shape = {**SHAPE, "slowed_kernel": ""}
    assert "rows" in backend.candidate("ours", KERNEL).check()


class Both(Library):
    """Whose two kernels differ."""

    general = True

    def variants(self, kernel_id: int) -> list[str]:
        return ["whole", "any"] if self.general else ["whole"]

    def kernel_attributes(self, kernel_id: int, device: int, variant: str) -> dict[str, int]:
        found = super().kernel_attributes(kernel_id, device, variant)
        return found | ({"registers": 255} if variant == "any" else {})


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("seq_len", "causal", "registers"), [(128, False, 200), (100, False, 255), (128, True, 255)]
)
def test_a_row_has_the_registers_of_the_kernel_that_is_launched(
    seq_len: int, causal: bool, registers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "load_library", Both)
    backend = cuda_backend.CudaBackend()
    backend.prepare({**SHAPE, "seq_len": seq_len, "causal": causal})
    assert backend.candidate("ours", KERNEL).describe()["registers"] == registers
    monkeypatch.setattr(Both, "general", False)
    if registers == 255:
        with pytest.raises(NotBuiltError, match="whole blocks without a mask only"):
            backend.candidate("ours", KERNEL)
