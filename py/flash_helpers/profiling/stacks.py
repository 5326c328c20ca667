"""The stacks behind the times of a torch profile, one path of names for each.

torch's own export_stacks leaves out the operation itself and the kernel that it launched, and every
kernel that no operation of torch launched (ours, Triton's); it rounds to whole microseconds, and
shows the profiler at work. So the paths are made from the events here.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Stack = tuple[str, ...]
# What is drawn: time of kernels on the GPU, or of the CPU.
GPU_TIME, CPU_TIME = "GPU time", "CPU time"
# Backward passes on a GPU run in threads of autograd's, which have no Python stack.
OTHER_THREADS = "(other threads)"

_BUILT_IN = re.compile(r"<built-in (?:method|function) (\w+)(?: of .*)?>")
_RUNTIME_CALL = re.compile(r"cu(?:da)?[A-Z]")  # cudaLaunchKernel, cuLaunchKernelEx, ...
_NANOSECONDS = 1000  # of the profiler's microseconds


def fold(events: Iterable[Any], root: str) -> tuple[dict[Stack, int], str]:
    """(nanoseconds by stack, GPU_TIME or CPU_TIME). `events`: those of torch.profiler, recorded
    with stacks; stacks begin with the range `root`, and what was not in it is left out, but for
    other threads. If kernels ran on a GPU, theirs is the time; each is a frame of its own."""
    on_cpu, kernels = [], []
    for event in events:
        if event.device_type.name == "CPU":
            on_cpu.append(event)
        elif not event.is_user_annotation:  # ranges are shown on the GPU, too
            kernels.append(event)
    paths = _Paths(on_cpu, root)
    found: dict[Stack, int] = {}
    for event in kernels:
        if stack := paths.of_kernel(event):
            _add(found, stack, event.time_range.elapsed_us())
    if found:
        return found, GPU_TIME
    for event in on_cpu:
        if stack := paths.of(event):
            _add(found, stack, event.self_cpu_time_total)
    return found, CPU_TIME


def _add(found: dict[Stack, int], stack: Stack, microseconds: float) -> None:
    nanoseconds = round(microseconds * _NANOSECONDS)
    if nanoseconds > 0:
        found[stack] = found.get(stack, 0) + nanoseconds


class _Paths:
    """From events to stacks. Empty stacks are to be left out."""

    def __init__(self, on_cpu: Sequence[Any], root: str) -> None:
        self._root = root
        self._home = {event.thread for event in on_cpu if event.name == root}
        self._launches = {e.id: e for e in on_cpu if _RUNTIME_CALL.match(e.name)}
        at_home = [e for e in on_cpu if e.thread in self._home and not _RUNTIME_CALL.match(e.name)]
        # Of two that begin together, the one that ends last is the outer one.
        self._at_home = sorted(at_home, key=lambda e: (e.time_range.start, -e.time_range.end))
        self._starts = [event.time_range.start for event in self._at_home]

    def of(self, event: Any) -> Stack:
        names: list[str] = []
        at = event
        while at is not None:
            names.append(at.name)
            if at.name == self._root:
                return tuple(map(_readable, reversed(names)))
            at = at.cpu_parent
        if event.thread in self._home:
            return ()
        return tuple(map(_readable, (self._root, OTHER_THREADS, *reversed(names))))

    def of_kernel(self, kernel: Any) -> Stack:
        """The stack of the call that launched it, which has the same id, and its own name."""
        launch = self._launches.get(kernel.id)
        if launch is None:
            return (self._root, "(launch not recorded)", _readable(kernel.name))
        # The profiler knows the caller where an operation of torch launched; else it is what ran
        # at that moment.
        caller = launch.cpu_parent or self._running_at(launch.time_range.start)
        stack = self.of(caller) if caller is not None else ()
        return (*stack, _readable(kernel.name)) if stack else ()

    def _running_at(self, moment: float) -> Any | None:
        """The innermost event of the main thread."""
        for event in reversed(self._at_home[: bisect.bisect_right(self._starts, moment)]):
            if event.time_range.end >= moment:
                return event
        return None


def _readable(name: str) -> str:
    """`gelu (built-in)` for `<built-in method gelu of type object at 0x7f…>`, whose address would
    make each run another."""
    match = _BUILT_IN.fullmatch(name)
    return f"{match[1]} (built-in)" if match else name


def render(stacks: Mapping[Stack, int]) -> str:
    """Folded stacks: frames between `;`, then a blank and the nanoseconds; sorted."""
    clean = str.maketrans({";": ",", "\n": " ", "\t": " "})
    lines = [
        ";".join(frame.translate(clean) for frame in stack) + f" {nanoseconds}"
        for stack, nanoseconds in stacks.items()
    ]
    return "\n".join(sorted(lines)) + "\n"
