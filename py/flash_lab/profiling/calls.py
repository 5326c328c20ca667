"""`benchmark` and `profile` of any function: the mean time of a call, and where that time goes."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flash_helpers.base.atomic_file import write_atomically
from flash_helpers.base.lazy import torch

from . import trace
from .flamegraph import flame_graph
from .nvtx import annotate
from .stacks import fold, render

# The longest of the operations' names that a table shows, and how many operations.
_NAME_WIDTH, _ROWS = 80, 10


class StackFilesError(OSError):
    """The files of `profile` cannot be written: not an OSError of the call that it profiles.
    `table` is what `profile` would have returned."""

    table = ""


def benchmark(
    description: str, run: Callable[[], object], num_warmups: int = 1, num_trials: int = 3
) -> float:
    """The mean milliseconds of `num_trials` calls by the wall clock, each from an idle GPU until it
    is idle again, after `num_warmups` that are not counted.

    `description` names the range of the trials for nsys and torch.profiler. Such a time includes
    the launches; `flash_lab.bench` times kernels alone. Raises ValueError for counts that make
    no sense, and whatever `run` raises.
    """
    if num_warmups < 0 or num_trials < 1:
        raise ValueError(
            f"{num_warmups} warm-ups and {num_trials} trials: expected 0 or more, and 1 or more"
        )
    _warm_up(run, num_warmups)
    times = []
    with annotate(description):
        for _ in range(num_trials):
            start = time.perf_counter()
            run()
            _synchronize()
            times.append((time.perf_counter() - start) * 1000)
    return statistics.fmean(times)


def profile(
    description: str, run: Callable[[], object], num_warmups: int = 1, with_stack: bool = False, *,
    out_dir: Path | str = "var",
) -> str:  # fmt: skip
    """The table of the operations that take most time of one call of `run`: on the GPU, or on the
    CPU where there is none.

    With `with_stack` the call is repeated with Python's stacks recorded (which slows it), and two
    files are written into `out_dir`: stacks_<description>.txt, a line for each stack, `frame;frame
    nanoseconds`, and stacks_<description>.svg, a flame graph. Any character of the
    description but letters, digits, `.` and `-` is `_` there. Raises ValueError for negative
    warm-ups, StackFilesError where the files cannot be written, and whatever `run` raises.
    """
    if num_warmups < 0:
        raise ValueError(f"{num_warmups} warm-ups: expected 0 or more")
    _warm_up(run, num_warmups)
    recorded = _record(description, run, with_stack=False)
    if with_stack:
        stacked = _record(description, run, with_stack=True)
        try:
            _write_stacks(description, trace.read(stacked), Path(out_dir))
        except StackFilesError as error:
            error.table = _table(recorded)
            raise
    return _table(recorded)


def _write_stacks(description: str, recorded: trace.Trace, folder: Path) -> None:
    stacks, what = fold(recorded, description)
    if not stacks:
        raise ValueError(f"the profile of {description!r} has no event with a time")
    text, picture = stack_files(description, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(text, render(stacks).encode(), mode=None)
        write_atomically(picture, flame_graph(stacks, description, what).encode(), mode=None)
    except OSError as error:
        raise StackFilesError(error.errno, error.strerror, error.filename) from error


def stack_files(description: str, folder: Path) -> tuple[Path, Path]:
    """Where `profile` writes: (text, SVG)."""
    name = "stacks_" + re.sub(r"[^\w.-]", "_", description)
    return folder / f"{name}.txt", folder / f"{name}.svg"


def _warm_up(run: Callable[[], object], count: int) -> None:
    for _ in range(count):
        run()
    _synchronize()


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _record(description: str, run: Callable[[], object], *, with_stack: bool) -> Any:
    def annotated() -> None:
        with annotate(description):
            run()
        _synchronize()

    return trace.record(annotated, on_gpu=torch.cuda.is_available(), with_stack=with_stack)


def _table(recorded: Any) -> str:
    averages = recorded.key_averages()
    # Newer releases of torch have another name for it.
    on_gpu = ["device_time_total", "cuda_time_total"]
    keys = on_gpu if torch.cuda.is_available() else ["cpu_time_total"]
    for key in keys:
        if all(hasattr(average, key) for average in averages):
            table: str = averages.table(
                sort_by=key, max_name_column_width=_NAME_WIDTH, row_limit=_ROWS
            )
            return table
    raise RuntimeError(f"this torch ({torch.__version__}) has none of {', '.join(keys)}")
