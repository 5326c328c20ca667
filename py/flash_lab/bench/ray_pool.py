"""The workers of a sweep on a Ray cluster: several GPUs of one host, or many hosts.

One Ray actor for each GPU keeps a worker process (supervisor.py), so that a kernel that faults
costs its row as everywhere; an actor or a host that dies costs the row in flight, too. Every host
needs the repository or the installed package at the same place. Ray is an optional dependency.
"""

from __future__ import annotations

import os
import queue
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flash_helpers.base.paths import python_path

from .events import Event, EventError, checked
from .measure import result
from .records import LAUNCH_FAIL, OK
from .supervisor import Supervisor, WorkerStartError, measure_all

LOCAL = "local"
# What may differ from worker to worker. All else must be the same, or rows could not be compared.
_OWN = ("gpu_uuid",)


class RayMissingError(RuntimeError):
    """Ray is not installed."""


class RemoteSupervisor:
    """What the actor runs; see supervisor.Supervisor."""

    def __init__(self, backend: str, time_limit_s: float) -> None:
        self._supervisor = Supervisor(backend, time_limit_s)

    def environment(self) -> tuple[str, Event]:
        """(host, environment). The error of a worker that cannot start comes as text: not every
        exception can travel."""
        try:
            return socket.gethostname(), self._supervisor.environment()
        except WorkerStartError as error:
            return socket.gethostname(), {"error": str(error)}

    def measure(self, request: Event) -> Iterator[Event]:
        yield from self._supervisor.measure(request)


@dataclass
class _Worker:
    actor: Any
    number: int
    name: str = ""  # host and GPU, for the rows


class RayPool:
    """Takes the place of a Supervisor, for several threads at once: each takes a free worker.

    Use as a context manager. `address`: "local" starts Ray on this host, anything else is an
    address of a running cluster ("auto", "10.0.0.1:6379"). `n_workers`: 0 for one on each GPU; a
    cluster without GPUs has that many on its CPUs.
    """

    def __init__(
        self, backend: str, time_limit_s: float = 120.0, *, address: str = LOCAL,
        n_workers: int = 0, start_limit_s: float = 300.0,
    ) -> None:  # fmt: skip
        self._backend, self._time_limit_s, self._address = backend, time_limit_s, address
        self._wanted, self._start_limit_s = n_workers, start_limit_s
        self._free: queue.Queue[_Worker] = queue.Queue()
        self._environment: Event = {}
        self._temporary: Path | None = None
        self._ray: Any = None
        self._make: Callable[[], Any] = lambda: None
        self._alive = 0
        self.n_workers = 0

    def __enter__(self) -> RayPool:
        try:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            import ray
        except ImportError as error:
            raise RayMissingError(f"--ray needs Ray: pip install ray ({error})") from None
        self._ray = ray
        try:
            self._connect()
            self._start_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._ray is not None and self._ray.is_initialized():
            self._ray.shutdown()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def environment(self) -> Event:
        return self._environment

    def measure(self, request: Event) -> Iterator[Event]:
        """As Supervisor.measure. Waits for a free worker; every result says which one it was."""
        return measure_all(request, self._attempt)

    def _connect(self) -> None:
        environ = {"PYTHONPATH": python_path()}
        options: dict[str, Any] = {"runtime_env": {"env_vars": environ}, "log_to_driver": False}
        if self._address == LOCAL:
            self._temporary = Path(tempfile.mkdtemp(prefix="ray-"))
            options |= {"_temp_dir": str(self._temporary), "include_dashboard": False}
            if self._wanted:
                options["num_cpus"] = max(self._wanted, os.cpu_count() or 1)
        else:
            options["address"] = self._address
        try:
            self._ray.init(configure_logging=False, **options)
        except (OSError, RuntimeError, ValueError) as error:
            raise WorkerStartError(f"Ray at {self._address!r}: {error}") from error

    def _start_workers(self) -> None:
        n_gpus = int(self._ray.cluster_resources().get("GPU", 0))
        n = min(self._wanted, n_gpus) if self._wanted and n_gpus else self._wanted or n_gpus or 1
        share: dict[str, Any] = {"num_gpus": 1} if n_gpus else {"num_cpus": 1}
        remote = self._ray.remote(**{"num_cpus": 0, **share})(RemoteSupervisor)
        self._make = lambda: remote.remote(self._backend, self._time_limit_s)
        workers = [_Worker(self._make(), number) for number in range(n)]  # they start side by side
        self._environment = in_common([self._ready(worker) for worker in workers])
        for worker in workers:
            self._free.put(worker)
        self.n_workers = self._alive = n

    def _ready(self, worker: _Worker) -> Event:
        """Its environment; it has a name from then on. Raises WorkerStartError."""
        errors, asked = self._ray.exceptions, worker.actor.environment.remote()
        try:
            host, environment = self._ray.get(asked, timeout=self._start_limit_s)
        except (errors.GetTimeoutError, errors.RayError) as error:
            raise WorkerStartError(f"a Ray worker does not start: {_head(error)}") from error
        if "error" in environment:
            raise WorkerStartError(f"{host}: {environment['error']}")
        try:
            checked({"event": "ready", "environment": environment})
        except EventError as error:
            raise WorkerStartError(f"the Ray worker on {host} sent {error}") from None
        worker.name = f"{host} {environment.get('gpu_uuid') or f'worker {worker.number}'}"
        return dict(environment)

    def _attempt(self, request: Event) -> Iterator[Event]:
        """One try on one worker. If that is lost, the rest is tried kernel by kernel: its last
        words may be lost with it, so what it ran is not known."""
        worker = self._take()
        left = {item["kernel"]: item for item in request["candidates"]}
        try:
            stream = worker.actor.measure.options(num_returns="streaming").remote(request)
            for reference in stream:
                event = checked(self._ray.get(reference))
                if event["event"] == "result":
                    left.pop(event["kernel"], None)
                    event = {**event, "worker": worker.name}
                yield event
        except self._ray.exceptions.RayError as error:
            lost = f"the Ray worker on {worker.name} was lost: {_head(error)}"
            self._replace(worker)
        except EventError as error:
            lost = f"the Ray worker on {worker.name} sent {error}"
            self._replace(worker)
        else:
            self._free.put(worker)
            return
        if len(request["candidates"]) == 1:
            for kernel in left:
                yield {**result(kernel, LAUNCH_FAIL, lost), "worker": worker.name}
            return
        for item in left.values():
            for event in self._attempt({**request, "candidates": [item]}):
                is_ok = event["event"] == "result" and event.get("status") == OK
                yield {**event, "note": f"measured alone: {lost}"} if is_ok else event

    def _take(self) -> _Worker:
        while True:
            try:
                return self._free.get(timeout=1.0)
            except queue.Empty:
                if not self._alive:
                    raise WorkerStartError("every Ray worker was lost, and none is left") from None

    def _replace(self, lost: _Worker) -> None:
        """Another actor in its place; the sweep goes on with fewer where there is no place."""
        self._ray.kill(lost.actor)
        worker = _Worker(self._make(), lost.number)
        try:
            in_common([self._environment, self._ready(worker)])
            self._free.put(worker)
        except WorkerStartError as error:
            self._alive -= 1
            print(f"note: {lost.name} is gone, {self._alive} worker(s) left: {error}", flush=True)


def in_common(environments: list[Event]) -> Event:
    """What all have. Raises WorkerStartError where they differ in more than their own identity."""
    first = {name: value for name, value in environments[0].items() if name not in _OWN}
    for other in environments[1:]:
        for name in sorted({*first, *other} - set(_OWN)):
            if first.get(name) != other.get(name):
                raise WorkerStartError(
                    f"the workers differ in {name}: {first.get(name)!r} and {other.get(name)!r}; "
                    "a sweep needs GPUs, drivers and builds that are alike"
                )
    return first


def _head(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
