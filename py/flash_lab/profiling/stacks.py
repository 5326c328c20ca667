"""The stacks that the times of a torch profile belong to, one path of names for each.

torch's own export_stacks leaves out the operation itself and the kernel that it launched, and every
kernel that no operation of torch launched; it rounds to whole microseconds, and shows the profiler
at work. So the paths are made from the trace here.
"""

import re
from collections.abc import Mapping

from .trace import RANGE, Span, Trace

Stack = tuple[str, ...]
# What is drawn: time of kernels on the GPU, or of the CPU.
GPU_TIME, CPU_TIME = "GPU time", "CPU time"
# Backward passes on a GPU run in threads of autograd's, which have no Python stack.
OTHER_THREADS = "(other threads)"

_BUILT_IN = re.compile(r"<built-in (?:method|function) (\w+)(?: of .*)?>")
_NANOSECONDS = 1000  # of the profiler's microseconds


def fold(trace: Trace, root: str) -> tuple[dict[Stack, int], str]:
    """(nanoseconds by stack, GPU_TIME or CPU_TIME). Stacks begin with the range `root`, and what
    was not in it is left out; what ran in other threads meanwhile stands under OTHER_THREADS. If
    kernels ran on a GPU, theirs is the time; each is a frame of its own."""
    roots = [span for span in trace.spans if span.name == root and span.kind == RANGE]
    found: dict[Stack, int] = {}
    for item in trace.on_gpu:
        if not item.launched:
            _add(found, (root, "(launch not recorded)", _readable(item.name)), item.us)
        elif item.caller and (stack := _path(item.caller, roots)):
            _add(found, (*stack, _readable(item.name)), item.us)
    if found:
        return found, GPU_TIME
    for span in trace.spans:
        if stack := _path(span, roots):
            _add(found, stack, span.self_us)
    return found, CPU_TIME


def _add(found: dict[Stack, int], stack: Stack, microseconds: float) -> None:
    nanoseconds = round(microseconds * _NANOSECONDS)
    if nanoseconds > 0:
        found[stack] = found.get(stack, 0) + nanoseconds


def _path(span: Span, roots: list[Span]) -> Stack:
    """The names from a root to the span; empty if no root holds it."""
    names: list[str] = []
    path: Stack = ()
    for at in span.outwards():
        names.append(_readable(at.name))
        if at in roots:  # the outermost, where a range of the same name is in it
            path = tuple(reversed(names))
    if path or any(root.thread == span.thread for root in roots):
        return path
    meanwhile = [root for root in roots if root.begin <= span.begin <= root.end]
    return (_readable(meanwhile[0].name), OTHER_THREADS, *reversed(names)) if meanwhile else ()


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
