"""A progress bar with an estimate on a terminal; nothing but the tables elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


class Progress:
    """Use as a context manager."""

    def __init__(self, total: int, title: str) -> None:
        self._bar: Any = None
        if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
            return
        from rich import progress
        from rich.console import Console

        columns = (
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}"),
        )
        self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, what: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=what[:44].replace("[", "\\["))

    def print(self, text: str) -> None:
        """Results go to standard output; the bar makes room for them."""
        if self._bar is not None:
            self._bar.stop()
        print(text, flush=True)
        if self._bar is not None:
            self._bar.start()
