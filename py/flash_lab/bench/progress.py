"""A progress bar with an estimate on a terminal; nothing but the tables elsewhere."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """Use as a context manager."""

    def __init__(self, total: int, title: str) -> None:
        self._total, self._title = total, title
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if not sys.stderr.isatty():
            return self
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress
        except ImportError:
            return self
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._title, total=self._total)
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
