"""What torch.profiler recorded, read from the trace that it exports.

The trace has what the profiler's own list of events leaves out: Python's frames (torch 2.11 has
none of them there), and for every kernel the call that launched it, also where that was no
operation of torch (ours, Triton's).
"""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from flash_helpers.base.lazy import torch
from flash_helpers.base.safe_read import parse_json

RANGE = "user_annotation"  # of record_function
_HOST = {RANGE, "cpu_op", "python_function"}
_LAUNCHES = {"cuda_runtime", "cuda_driver"}
_ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}


@dataclass(eq=False, slots=True)
class Span:
    """Something that ran on the host: a range, an operation, a Python function. Microseconds."""

    name: str
    kind: str
    thread: Any
    begin: float
    end: float
    self_us: float  # outside the spans in it
    parent: Span | None = None

    @property
    def us(self) -> float:
        return self.end - self.begin

    def outwards(self) -> Iterator[Span]:
        """Itself, and the spans that it is in."""
        at: Span | None = self
        while at is not None:
            yield at
            at = at.parent


@dataclass(frozen=True, slots=True)
class OnGpu:
    """A kernel, a copy or a memset. `caller`: the innermost span of the host that launched it; None
    outside of all. Without `launched` the launch itself is not in the trace."""

    name: str
    us: float
    launched: bool
    caller: Span | None


@dataclass(frozen=True)
class Trace:
    spans: tuple[Span, ...]
    on_gpu: tuple[OnGpu, ...]


def record(run: Callable[[], object], *, on_gpu: bool, with_stack: bool = False) -> Any:
    """The torch.profiler.profile of one call, which waits for what it queues."""
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, *([kinds.CUDA] if on_gpu else [])]
    with torch.profiler.profile(activities=activities, with_stack=with_stack) as recorded:
        run()
    return recorded


def read(recorded: Any) -> Trace:
    """The trace of a torch.profiler.profile that has ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        return load(path)


def load(path: Path) -> Trace:
    text = path.read_text(errors="replace")
    return parse(parse_json(text, finite=False)["traceEvents"])


def parse(events: Iterable[Mapping[str, Any]]) -> Trace:
    """`events`: of a Chrome trace, as torch.profiler names their categories."""
    complete = [event for event in events if event.get("ph") == "X"]
    threads: dict[Any, list[Span]] = {}
    for event in complete:
        if event.get("cat") in _HOST:
            begin, us = float(event["ts"]), float(event["dur"])
            span = Span(event["name"], event["cat"], event["tid"], begin, begin + us, us)
            threads.setdefault(span.thread, []).append(span)
    for spans in threads.values():
        _nest(spans)
    launches = {
        event["args"].get("correlation"): event
        for event in complete
        if event.get("cat") in _LAUNCHES
    }
    on_gpu = []
    for event in complete:
        if event.get("cat") in _ON_GPU:
            launch = launches.get(event["args"].get("correlation"))
            caller = _running(threads, launch) if launch else None
            on_gpu.append(OnGpu(event["name"], float(event["dur"]), launch is not None, caller))
    return Trace(tuple(span for spans in threads.values() for span in spans), tuple(on_gpu))


def _nest(spans: list[Span]) -> None:
    """Sorts the spans of one thread by their begin and finds what each is in. A range begins in one
    call and ends in another (__enter__, __exit__), so that one may reach into the next: only what
    holds all of a span is its parent."""
    spans.sort(key=lambda span: (span.begin, -span.end))
    around: list[Span] = []
    for span in spans:
        while around and around[-1].end < span.end:
            around.pop()
        if around:
            span.parent = around[-1]
            span.parent.self_us -= span.us
        around.append(span)


def _running(threads: Mapping[Any, list[Span]], launch: Mapping[str, Any]) -> Span | None:
    """The innermost span of the launching thread at that moment."""
    spans, moment = threads.get(launch["tid"], []), float(launch["ts"])
    at = bisect.bisect_right(spans, moment, key=attrgetter("begin")) - 1
    if at < 0:
        return None
    return next((span for span in spans[at].outwards() if span.end >= moment), None)
