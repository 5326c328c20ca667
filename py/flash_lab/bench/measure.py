"""One problem in one process: every candidate is checked, the right ones are timed in turns.

Runs in a worker (worker.py). The backend is what differs between a GPU and a test.
"""

import contextlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from flash_helpers.base.timing import Bursts, Policy, Sample, Timer, interleaved

from .clocks import ClockSampler, throttled
from .energy import EnergyError, EnergyMeter
from .records import COMPILE_FAIL, LAUNCH_FAIL, OK, SKIPPED, WRONG, head
from .row import Json as Json
from .row_fields import LEAST_MS, MOST_MS, is_time

Emit = Callable[[Mapping[str, object]], None]


class SkippedError(Exception):
    """This candidate has nothing to say to this problem; the message says why."""


class NotBuiltError(Exception):
    """The build at hand does not have this kernel."""


class Candidate(Protocol):
    """A kernel or a reference on the inputs of the problem."""

    def __call__(self) -> object: ...

    def check(self) -> str:
        """Runs it on a spoilt output; what is wrong with the result, or an empty string."""
        ...

    def describe(self) -> Json:
        """What a row shall say beside the times: label, note, registers, ..."""
        ...

    def captured(self) -> Callable[[], object]:
        """The same run as the replay of a CUDA graph."""
        ...


class Backend(Protocol):
    def environment(self) -> Json: ...

    def prepare(self, shape: Json) -> None: ...

    def candidate(self, provider: str, kernel: str) -> Candidate:
        """Raises SkippedError or NotBuiltError."""
        ...

    def timer(self, policy: Policy) -> Timer: ...

    def clocks(self) -> AbstractContextManager[ClockSampler]: ...

    def clock_under(self, function: Callable[[], object], call_ms: float) -> float | None:
        """MHz of the SMs while `function` runs; None where nobody knows."""
        ...

    def energy_meter(self) -> EnergyMeter:
        """Raises EnergyError."""
        ...

    def implausible(self, shape: Json, milliseconds: float) -> str:
        """Why no device can be that fast, or an empty string."""
        ...

    def lost(self) -> str:
        """Why nothing can run any more (after some CUDA errors nothing can), or an empty string."""
        ...


class DeviceLostError(RuntimeError):
    """This process is of no more use."""


def run_problem(request: Json, backend: Backend, emit: Emit) -> None:
    """Emits `running` before anything runs, and one `result` for every candidate."""
    backend.prepare(request["shape"])
    policy = Policy.from_json(request["policy"])
    right: dict[str, Candidate] = {}
    for item in request["candidates"]:
        kernel = item["kernel"]
        emit({"event": "running", "kernel": kernel, "phase": "check"})
        with _reported(kernel, backend, emit):
            candidate = backend.candidate(item["provider"], kernel)
            problem = candidate.check()
            if problem:
                emit(result(kernel, WRONG, problem, candidate.describe()))
            else:
                right[kernel] = candidate
    if right:
        _time(right, request, policy, backend, emit)


@contextlib.contextmanager
def _reported(kernel: str, backend: Backend, emit: Emit) -> Iterator[None]:
    """An exception becomes a row; if the device went with it, the process ends."""
    try:
        yield
    except SkippedError as error:
        emit(result(kernel, SKIPPED, str(error)))
    except NotBuiltError as error:
        emit(result(kernel, COMPILE_FAIL, str(error)))
    except Exception as error:  # whatever a kernel or a reference raises is its result
        emit(result(kernel, LAUNCH_FAIL, f"{type(error).__name__}: {error}"))
        reason = backend.lost()
        if reason:
            raise DeviceLostError(reason) from error


def _time(
    right: dict[str, Candidate], request: Json, policy: Policy, backend: Backend, emit: Emit
) -> None:
    functions: dict[str, Callable[[], object]] = {}
    for kernel, candidate in right.items():
        emit({"event": "running", "kernel": kernel, "phase": "measure"})
        with _reported(kernel, backend, emit):
            functions[kernel] = candidate.captured() if policy.graph else candidate
    current = ""

    def announce(kernel: str) -> None:
        nonlocal current
        current = kernel
        emit({"event": "running", "kernel": kernel, "phase": "measure"})

    with backend.clocks() as clocks:
        try:
            seed = request["shape"]["seed"]
            timer = _possible(backend.timer(policy))
            bursts = interleaved(functions, policy, timer, seed, announce)
        except Exception as error:
            emit(result(current, LAUNCH_FAIL, f"{type(error).__name__}: {error}"))
            # Even where the device lives: the others' turns were cut short, so they start anew.
            raise DeviceLostError(f"{current} failed while it was timed: {error}") from error
    chance = random.Random(request["shape"]["seed"])  # noqa: S311  an order, nothing secret
    medians = {
        kernel: statistics.median(sample.ms for burst in taken for sample in burst)
        for kernel, taken in bursts.items()
    }
    loads = _loads(functions, medians, policy, backend, emit, chance)
    for kernel, taken in bursts.items():
        emit({"event": "running", "kernel": kernel, "phase": "check again"})
        with _reported(kernel, backend, emit):
            measured = _measured(taken, clocks)
            problem = right[kernel].check()
            problem = problem or backend.implausible(request["shape"], medians[kernel])
            details = right[kernel].describe() | loads.get(kernel, {})
            if problem:
                emit(result(kernel, WRONG, problem, details))
            else:
                emit(result(kernel, OK, "", details | measured))


def _possible(timer: Timer) -> Timer:
    """A time that nothing can take is the failure of the kernel that was timed: later, in sums and
    quotients, it would be that of another."""

    def timed(function: Callable[[], object]) -> Sample:
        sample = timer(function)
        if not is_time(sample.ms):
            raise ValueError(f"it took {sample.ms} ms: {LEAST_MS:g} to {MOST_MS:g} are possible")
        return sample

    return timed


def _loads(
    functions: dict[str, Callable[[], object]], times: dict[str, float], policy: Policy,
    backend: Backend, emit: Emit, chance: random.Random,
) -> dict[str, Json]:  # fmt: skip
    """By kernel, what the GPU does under it: its clock, and if asked for the joules of a call, one
    value for each round (in turns, like times)."""
    found: dict[str, Json] = {kernel: {} for kernel in functions}
    order, kernel = list(functions), ""
    try:
        for kernel in order:
            emit({"event": "running", "kernel": kernel, "phase": "clock"})
            found[kernel] |= _clock(functions[kernel], times[kernel], backend)
        if policy.energy_rounds:
            meter = backend.energy_meter()
            for _ in range(policy.energy_rounds):
                chance.shuffle(order)
                for kernel in order:
                    emit({"event": "running", "kernel": kernel, "phase": "energy"})
                    energy = meter.per_call(functions[kernel], times[kernel], policy.energy_s)
                    found[kernel].setdefault("joules", []).append(round(energy.joules, 7))
                    found[kernel]["loop_watts"] = round(energy.watts, 1)
    except EnergyError as error:
        for row in found.values():
            row.pop("joules", None)
            row["energy_note"] = str(error)
    except Exception as error:
        emit(result(kernel, LAUNCH_FAIL, f"{type(error).__name__}: {error}"))
        raise DeviceLostError(f"{kernel} failed after it was timed: {error}") from error
    return found


def _clock(function: Callable[[], object], call_ms: float, backend: Backend) -> Json:
    """A figure beside the times: not to have it costs no row."""
    try:
        mhz = backend.clock_under(function, call_ms)
    except Exception as error:
        if backend.lost():
            raise
        return {"loaded_clock_note": f"no clock under load: {type(error).__name__}: {error}"}
    return {} if mhz is None else {"loaded_sm_mhz": round(mhz, 1)}


def _measured(bursts: Bursts, clocks: ClockSampler) -> Json:
    samples = [sample for burst in bursts for sample in burst]
    mhz = [sample.sm_mhz for sample in samples if sample.sm_mhz is not None]
    reasons = throttled(samples, clocks.readings)
    found: Json = {
        "samples_ms": [round(sample.ms, 6) for sample in samples],
        "bursts": [len(burst) for burst in bursts],
        "throttled": {str(i): reason for i, reason in enumerate(reasons) if reason},
        "clocks": clocks.summary(),
    }
    if mhz:
        found["effective_sm_mhz"] = round(statistics.median(mhz), 1)
    if clocks.note:
        found["clock_note"] = clocks.note
    return found


def result(kernel: str, status: str, error: str = "", more: Json | None = None) -> Json:
    row = {"event": "result", "kernel": kernel, "status": status, "error": head(error)}
    return row | (more or {})
