"""Our kernels and the references on a real GPU. Lives in a worker process."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flash_helpers.base.lazy import torch
from flash_helpers.base.timing import CudaTimer, Policy, Timer
from flash_helpers.check.judge import Judge, Qkv
from flash_helpers.check.peers import ReferenceUnavailableError
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.problem import AttentionProblem

from ..provenance import UNKNOWN, device_state, library_state
from .ceilings import is_ceiling, make_candidate
from .clocks import ClockSampler
from .energy import EnergyMeter, cuda_mark
from .loaded_clock import LoadedClock
from .measure import Candidate, Json, NotBuiltError, SkippedError
from .providers import CEILING, OURS, find_reference
from .results import gpu_sms
from .row import problem_of
from .stats import tflops

# Dense fp16 operations per SM and cycle (NVIDIA's architecture white papers).
_TENSOR_FLOP = {"8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096, "10.0": 8192, "12.0": 1024}
# The whole batch would cost more time than the sweep: two entries show every row's path.
CHECKED_ENTRIES = slice(2)


@dataclass
class Inputs:
    shape: Json
    judge: Judge
    o: torch.Tensor

    @property
    def tensors(self) -> Qkv:
        return self.judge.tensors


@dataclass
class CudaCandidate:
    inputs: Inputs
    run: Callable[[], torch.Tensor]
    details: Json
    preallocated_bytes: int = 0  # output and local memory, which no allocation during a call shows

    def __call__(self) -> object:
        return self.run()

    def check(self) -> str:
        self.inputs.o.fill_(float("nan"))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        try:
            output = self.run()
        except ReferenceUnavailableError as error:
            raise SkippedError(str(error)) from error
        torch.cuda.synchronize()
        # Inputs, output and whatever else a call needs on the device.
        needed = sum(tensor.nbytes for tensor in self.inputs.tensors) + self.preallocated_bytes
        allocated = torch.cuda.max_memory_allocated() - before
        self.details["memory_bytes"] = needed + allocated
        return self.inputs.judge.problem_with(output)

    def describe(self) -> Json:
        return self.details

    def captured(self) -> Callable[[], object]:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run()
        replay: Callable[[], object] = graph.replay
        return replay


class CudaBackend:
    """One GPU: the current device of this process."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("no data: torch sees no CUDA device")
        self._state: Json = {**device_state(), **library_state()}
        uuid = str(self._state.get("gpu_uuid", ""))
        self._uuid = "" if UNKNOWN in uuid else uuid
        self._inputs: Inputs | None = None
        self._ceiling_shape: Json | None = None
        self._loaded_clock: LoadedClock | None = None

    def environment(self) -> Json:
        return {**self._state, "python": platform.python_version()}

    def prepare(self, shape: Json) -> None:
        """Keeps the inputs of the last problem: its next group needs them again."""
        if self._inputs is not None and self._inputs.shape == shape:
            return
        self._inputs = None
        self._ceiling_shape = shape if is_ceiling(shape) else None
        torch.cuda.empty_cache()
        if is_ceiling(shape):
            return
        problem = problem_of(shape)
        tensors = problem.tensors(shape["seed"], "cuda")
        judge = Judge(tensors, causal=problem.causal, entries=CHECKED_ENTRIES)
        self._inputs = Inputs(shape, judge, judge.poisoned())

    def candidate(self, provider: str, kernel: str) -> Candidate:
        if provider == CEILING and self._ceiling_shape is not None:
            return make_candidate(kernel, self._ceiling_shape, "cuda")
        if provider == OURS:
            return self.our_candidate(kernel)
        label, note, function = find_reference(provider, self.problem().causal)
        inputs = self._prepared()
        run = partial(function, *inputs.tensors)
        return CudaCandidate(inputs, run, {"label": label, "note": note})

    def problem(self) -> AttentionProblem:
        return problem_of(self._prepared().shape)

    def _prepared(self) -> Inputs:
        if self._inputs is None:
            raise RuntimeError("candidate() before prepare()")
        return self._inputs

    def tensors(self) -> tuple[Qkv, torch.Tensor]:
        """q, k, v and the output of the problem."""
        inputs = self._prepared()
        return inputs.tensors, inputs.o

    def candidate_of(self, run: Callable[[], torch.Tensor], details: Json) -> Candidate:
        """Of a function that reads tensors()'s inputs and writes tensors()'s output."""
        inputs = self._prepared()
        return CudaCandidate(inputs, run, details, inputs.o.nbytes)

    def our_candidate(self, kernel: str, **more: Any) -> Candidate:
        """`kernel`: a short form; `more` goes into the row."""
        import flash_attention
        from flash_attention.library import load_library

        inputs = self._prepared()
        config = parse_kernel_name_into_config(kernel)
        causal = problem_of(inputs.shape).causal
        run = partial(flash_attention.forward, config, *inputs.tensors, inputs.o, causal=causal)
        details: Json = {"label": config.short_form(), "note": ""}
        q, k, _ = inputs.tensors
        variant = config.variant_for(q.shape[1], k.shape[1], causal)
        kernel_id = _kernel_id(config, variant)
        attributes = load_library().kernel_attributes(kernel_id, 0, variant.value)
        details |= {
            "registers": attributes["registers"],
            "spilled_bytes": attributes["local_bytes"],
            "blocks_per_sm": attributes["blocks_per_multiprocessor"],
            "shared_bytes": attributes["static_shared_bytes"] + attributes["dynamic_shared_bytes"],
            "threads": config.n_threads(),
        }
        # The driver sets local memory aside for every thread that can be resident.
        n_threads = details["blocks_per_sm"] * config.n_threads() * int(self._state["gpu_sms"])
        spilled = details["spilled_bytes"] * n_threads
        return CudaCandidate(inputs, run, details | more, inputs.o.nbytes + spilled)

    def timer(self, policy: Policy) -> Timer:
        return CudaTimer(torch.device("cuda"), cold_l2=policy.cold_l2)

    def clocks(self) -> ClockSampler:
        return ClockSampler(self._uuid)

    def clock_under(self, function: Callable[[], object], call_ms: float) -> float | None:
        if self._loaded_clock is None:
            self._loaded_clock = LoadedClock(torch.device("cuda"))
        return self._loaded_clock.mhz(function, call_ms)

    def energy_meter(self) -> EnergyMeter:
        return EnergyMeter(self._uuid, cuda_mark)

    def implausible(self, shape: Json, milliseconds: float) -> str:
        if is_ceiling(shape):
            return ""
        rate = tflops(problem_of(shape).matmul_flop(), milliseconds)
        peak = peak_tflops(self._state)
        if peak is None or rate <= peak:
            return ""
        return f"{rate:.0f} TFLOP/s is more than this GPU can do ({peak:.0f}): not all was computed"

    def lost(self) -> str:
        try:
            torch.cuda.synchronize()
            torch.zeros(1, device="cuda").item()
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return ""


def _kernel_id(config: KernelConfig, variant: Variant) -> int:
    """Of the kernel that is measured, which is compiled now if the build lacks it. Raises
    NotBuiltError where it is not."""
    from flash_attention import KernelNotBuiltError
    from flash_attention.interface import kernel_id_of, kernel_ids
    from flash_attention.library import load_library

    try:
        return kernel_id_of(config, variant, 0)
    except KernelNotBuiltError:
        built = kernel_ids()
        if config.kernel_name() in built:
            reason = "the build has it for whole blocks without a mask only"
        else:
            reason = f"not among the {len(built)} kernels of KERNELS={load_library().kernel_set()}"
        raise NotBuiltError(reason) from None


def peak_tflops(environment: dict[str, Any]) -> float | None:
    """Dense fp16 on the tensor cores at the top clock; None if the GPU is not known."""
    flop = _TENSOR_FLOP.get(str(environment.get("compute_capability")))
    clock = str(environment.get("top_sm_clock", "")).removesuffix(" MHz")
    if flop is None or not (clock.isascii() and clock.isdecimal() and len(clock) < 7):
        return None
    sms = gpu_sms(environment)
    return sms * flop * int(clock) / 1e6 if sms else None
