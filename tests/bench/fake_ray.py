"""Ray in one process: as much of it as RayPool uses. Actors are objects, references are values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


class RayError(Exception):
    pass


class _Method:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def options(self, **_: object) -> _Method:
        return self

    def remote(self, *arguments: object) -> Any:
        return self._call(*arguments)


class _Actor:
    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> _Method:
        return _Method(getattr(self._inner, name))


class _Class:
    def __init__(self, made: Callable[..., object]) -> None:
        self._made = made

    def remote(self, *arguments: object) -> _Actor:
        return _Actor(self._made(*arguments))


class Stand:
    """What a worker far away answers: `say` yields its events for a request."""

    def __init__(self, say: Callable[[Any], Iterator[Any]], environment: Any) -> None:
        self._say, self._environment = say, environment

    def environment(self) -> tuple[str, Any]:
        return "far", self._environment

    def measure(self, request: Any) -> Iterator[Any]:
        yield from self._say(request)


def module(say: Callable[[Any], Iterator[Any]], environment: Any) -> ModuleType:
    """For sys.modules["ray"]: every actor is a Stand."""
    ray: Any = ModuleType("ray")
    ray.exceptions = ModuleType("ray.exceptions")
    ray.exceptions.RayError = RayError
    ray.exceptions.GetTimeoutError = RayError
    ray.init = lambda **_: None
    ray.is_initialized = lambda: True
    ray.shutdown = lambda: None
    ray.kill = lambda actor: None
    ray.cluster_resources = dict
    ray.remote = lambda **_: lambda _class: _Class(lambda *_: Stand(say, environment))
    ray.get = lambda reference, **_: reference
    found: ModuleType = ray
    return found
