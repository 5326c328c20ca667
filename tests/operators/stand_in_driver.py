"""CUDA's driver, as far as repeated calls go there: it notes what it gets."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

_WORD = ctypes.c_uint64
_REPLACE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_WORD), _WORD)
_ANSWER = ctypes.CFUNCTYPE(ctypes.c_int, _WORD, ctypes.POINTER(_WORD))
_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, _WORD, *[ctypes.c_uint] * 7, _WORD, ctypes.POINTER(ctypes.POINTER(_WORD)), _WORD
)
_COOPERATIVE = ctypes.CFUNCTYPE(
    ctypes.c_int, _WORD, *[ctypes.c_uint] * 7, _WORD, ctypes.POINTER(ctypes.POINTER(_WORD))
)


class _Attribute(ctypes.Structure):  # CUlaunchAttribute
    _fields_ = [("kind", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("n", ctypes.c_uint),
    ]  # fmt: skip


_EXTENDED = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Config), _WORD, ctypes.POINTER(ctypes.POINTER(_WORD)), _WORD
)
STREAMS = itertools.count(1)  # whose ids are never used again


class Driver:
    """`launched`: function, grid, block, shared memory, stream and the first parameters."""

    def __init__(self, count: int = 6, status: int = 0) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.count, self.status = count, status
        self._function = _FUNCTION(self._launch)
        self._cooperative = _COOPERATIVE(self._launch_cooperative)
        self._extended = _EXTENDED(self._launch_extended)
        self._replace = _REPLACE(self._replaced)
        self._id, self._capturing = _ANSWER(self._id_of), _ANSWER(self._is_capturing)
        self.replaced: list[int] = []
        self.cooperative = 0  # of the launches
        self.clusters: list[tuple[int, ...]] = []
        self.stream, self.captured = next(STREAMS), False

    def _launch(self, *given: Any) -> int:
        *sizes, parameters, _ = given
        self.launched.append((*sizes, [parameters[i][0] for i in range(self.count)]))
        return self.status

    def _launch_cooperative(self, *given: Any) -> int:
        self.cooperative += 1
        return self._launch(*given, 0)

    def _launch_extended(self, how: Any, function: int, parameters: Any, nothing: int) -> int:
        config = how[0]
        (attribute,) = config.attributes[: config.n]
        assert (attribute.kind, nothing) == (4, 0)  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        self.clusters.append(tuple(attribute.value[:3]))
        sizes = *config.grid, *config.block, config.shared_bytes, config.stream or 0
        return self._launch(function, *sizes, parameters, 0)

    def _id_of(self, _: int, answer: Any) -> int:
        answer[0] = self.stream
        return self.status

    def _is_capturing(self, _: int, answer: Any) -> int:
        ctypes.cast(answer, ctypes.POINTER(ctypes.c_int))[0] = self.captured
        return self.status

    @property
    def functions(self) -> tuple[int, ...]:
        every = (
            self._function, self._cooperative, self._extended, self._replace, self._id,
            self._capturing,
        )  # fmt: skip
        return tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in every)

    def _replaced(self, words: Any, address: int) -> int:
        """A map begins with its address."""
        self.replaced.append(address)
        words[0] = address
        return self.status
