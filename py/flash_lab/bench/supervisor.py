"""Keeps one worker process alive, and pins every crash and hang on the kernel that ran."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Protocol

from flash_helpers.base.paths import python_path

from .events import MOST_BYTES, Event, EventError, parse_event, usable
from .measure import result
from .records import LAUNCH_FAIL, TIMEOUT

_TAIL_BYTES = 2000
_LIBRARY_VARIABLE = "FLASH_ATTENTION_LIBRARY"  # flash_attention.library reads it


class Measurer(Protocol):
    """Where kernels run: one worker, or many. `n_workers` threads may measure at once."""

    @property
    def n_workers(self) -> int: ...

    def environment(self) -> Event: ...

    def measure(self, request: Event) -> Iterator[Event]: ...


class WorkerStartError(RuntimeError):
    """No worker can be had on this machine; the message says what it printed."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    events: int  # read end of its pipe
    stderr: IO[bytes]
    pending: bytes = b""

    def send(self, request: Event) -> bool:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def event(self, limit_s: float) -> Event | None:
        """The next event; None at the end of the stream. Raises TimeoutError and EventError."""
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.events, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                chunk = os.read(self.events, 1 << 16)
                if not chunk:
                    return None
                self.pending += chunk
                if len(self.pending) > MOST_BYTES and b"\n" not in self.pending:
                    raise EventError(f"a line of more than {MOST_BYTES >> 20} MB")
        line, _, self.pending = self.pending.partition(b"\n")
        return parse_event(line)

    def end(self) -> str:
        """Kills it with whatever it started; how it ended and the last it printed."""
        # It leads its own group, so the group is its and its children's alone.
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=30)  # a process in the GPU driver dies when that lets go
        os.close(self.events)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - _TAIL_BYTES))
        tail = self.stderr.read().decode(errors="replace").strip()
        self.stderr.close()
        return tail


@dataclass
class Supervisor:
    """Use as a context manager. `time_limit_s` is for one step of one kernel: its check with the
    preparation of the problem, or one burst."""

    backend: str  # "module:Class"
    time_limit_s: float = 120.0
    start_limit_s: float = 180.0
    device: str = ""  # CUDA_VISIBLE_DEVICES of the worker, if not empty
    library: str = ""  # FLASH_ATTENTION_LIBRARY of the worker, if not empty
    n_started: int = 0
    n_workers: int = 1
    _environment: Event = field(default_factory=dict)
    _worker: _Worker | None = None

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> str:
        worker, self._worker = self._worker, None
        return worker.end() if worker else ""

    def environment(self) -> Event:
        """What the worker says about GPU, driver, versions and build."""
        self._started()
        return self._environment

    def measure(self, request: Event) -> Iterator[Event]:
        """`running` events and exactly one `result` for every candidate, whatever happens."""
        return measure_all(request, self._attempt)

    def _attempt(self, request: Event) -> Iterator[Event]:
        """Events until the problem is done or the worker is lost, which costs what was running:
        or everything, if that was the preparation."""
        worker = self._started()
        current: str | None = None
        status, error = LAUNCH_FAIL, ""
        finished: set[str] = set()
        if worker.send(request):
            try:
                while event := worker.event(self.time_limit_s):
                    if event["event"] == "done":
                        return
                    if event["event"] == "lost":
                        self.stop()
                        return  # the row of the culprit was the last result
                    if event["event"] == "running":
                        current = event["kernel"]
                    elif event["event"] == "result":
                        finished.add(event["kernel"])
                    yield event
            except TimeoutError:
                status, error = TIMEOUT, f"no answer within {self.time_limit_s:g} s"
            except EventError as problem:
                error = f"the worker sent {problem}"
        process = worker.process
        if not error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            error = f"the worker {describe_end(process.returncode)}"
        tail = self.stop()
        error += f"\n{tail}" if tail else ""
        blamed = [item["kernel"] for item in request["candidates"]] if current is None else []
        if current is not None and current not in finished:
            blamed = [current]
        for kernel in blamed:
            yield result(kernel, status, error)

    def _started(self) -> _Worker:
        if self._worker is not None and self._worker.process.poll() is None:
            return self._worker
        self.stop()
        self._worker = worker = self._spawn()
        try:
            event = worker.event(self.start_limit_s)
        except TimeoutError:
            tail = self.stop()
            raise WorkerStartError(
                f"the worker was not ready within {self.start_limit_s:g} s: {tail}"
            ) from None
        except EventError as problem:
            raise WorkerStartError(f"the worker sent {problem}: {self.stop()}") from None
        if event is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(timeout=10)
            how = describe_end(worker.process.returncode)
            raise WorkerStartError(f"the worker {how} before it was ready: {self.stop()}")
        if event["event"] != "ready":
            raise WorkerStartError(f"the worker began with `{event['event']}`: {self.stop()}")
        self._environment = event["environment"]
        return worker

    def _spawn(self) -> _Worker:
        environ = {**os.environ, "PYTHONPATH": python_path()}
        if self.device:
            environ["CUDA_VISIBLE_DEVICES"] = self.device
        if self.library:
            environ[_LIBRARY_VARIABLE] = self.library
        reader, writer = os.pipe()
        stderr = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker
        module = f"{__package__}.worker"
        command = [sys.executable, "-m", module, self.backend, str(writer), str(os.getpid())]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=stderr,
            stderr=stderr,
            env=environ,
            pass_fds=[writer],
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which ends the worker
        )
        os.close(writer)
        self.n_started += 1
        return _Worker(process, reader, stderr)


def measure_all(request: Event, attempt: Callable[[Event], Iterator[Event]]) -> Iterator[Event]:
    """Attempts until every candidate has exactly one result; `attempt` may end early. What is no
    event of a candidate that is left is dropped: it was said twice, or was never asked for."""
    left = {item["kernel"]: item for item in request["candidates"]}
    while left:
        before = len(left)
        for event in attempt(request | {"candidates": list(left.values())}):
            if event["event"] not in ("running", "result") or event["kernel"] not in left:
                continue
            if event["event"] == "result":
                del left[event["kernel"]]
            yield usable(event)
        if len(left) == before:  # nobody to blame: it would go on for ever
            for kernel in left:
                yield result(kernel, LAUNCH_FAIL, "the worker ended without a result for it")
            return


def describe_end(returncode: int | None) -> str:
    if returncode is None:
        return "does not end"
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"exited with code {returncode}"
