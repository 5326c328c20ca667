"""Triton's launcher in C, without the Python that Triton puts around it at every launch."""

from __future__ import annotations

import ctypes
import inspect
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .launched import Launched
from .versions import installed_version, minor_of

Start = Callable[[int, Sequence[Any]], object]  # (stream, all arguments)

_NO_HOOKS = (None, None, None)  # launch metadata, before the launch, after it
_NO_SCRATCH = (None, None)  # memory that kernels of other people ask Triton for
_TESTED = ((3, 6), (3, 9))
_LANES = 32
_MAP = "nvTmaDesc"
_MAP_BYTES = 128
_OBJECTS_WITH_MAPS = (192, 256)  # a header, aligned as CUDA 12 or 13 wants it, and the map
# Of numbers in a kernel's signature.
_BYTES = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H",
    "u32": "I", "u64": "Q", "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip


@dataclass(frozen=True)
class Direct:
    """`start` launches as `in_c(*prepare(stream, arguments))` does. What `prepare` returns holds
    addresses, not tensors: making a descriptor of one costs more than the rest of a launch."""

    start: Start
    prepare: Callable[[int, Sequence[Any]], tuple[Any, ...]]
    in_c: Callable[..., object]


@dataclass(frozen=True)
class Packed:
    """A launch as the driver gets it: `parameters` as numbers of eight bytes, whose first are
    the parameter's. Those at `pointers` are addresses or, in `maps`, tensor maps of TMA: bytes,
    and the address that they were made of. `cooperative`: its blocks wait for each other.
    `cluster`: blocks of one, along the grid's first dimension."""

    function: int
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    parameters: tuple[int, ...]
    pointers: tuple[int, ...]
    maps: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    cooperative: bool = False
    cluster: int = 1


def checked_start(launch: Launched) -> Start:
    """CompiledKernel.run, as JITFunction.run calls it (3.6 to 3.9), without hooks."""
    kernel, (x, y, z) = launch.kernel, launch.grid
    run, function, packed = kernel.run, kernel.function, kernel.packed_metadata

    def start(stream: int, arguments: Sequence[Any]) -> None:
        run(x, y, z, stream, function, packed, *_NO_HOOKS, *arguments)

    return start


def direct(launch: Launched) -> Direct | None:
    """None where this release of Triton, or this kernel, is not known to be launched so."""
    launcher, (x, y, z), function = launch.kernel.run, launch.grid, launch.kernel.function
    minor = minor_of(installed_version() or "")
    if not _TESTED[0] <= minor <= _TESTED[1] or not _needs_no_more(launcher):
        return None
    in_c, flags = _in_c(launcher.launch), (launcher.launch_cooperative_grid, launcher.launch_pdl)
    describes = in_c is not launcher.launch
    # Without TMA a descriptor becomes its tensor, which must not be kept.
    meta = getattr(launch.kernel.metadata, "tensordesc_meta", None) if describes else None
    if in_c is None or (describes and not meta):
        return None
    packed = launch.kernel.packed_metadata
    fixed: tuple[Any, ...]
    if minor == (3, 6):
        fixed = (function, *flags, *_NO_SCRATCH, packed, *_NO_HOOKS)

        def start(stream: int, arguments: Sequence[Any]) -> None:
            in_c(x, y, z, stream, *fixed, *arguments)

        def prepare(stream: int, arguments: Sequence[Any]) -> tuple[Any, ...]:
            return (x, y, z, stream, *fixed, *arguments)

    else:
        types = launcher.arg_annotations, launcher.kernel_signature
        fixed = (function, *flags, packed, *_NO_HOOKS, *_NO_SCRATCH, *types)

        def start(stream: int, arguments: Sequence[Any]) -> None:
            in_c(x, y, z, stream, *fixed, arguments)

        def prepare(stream: int, arguments: Sequence[Any]) -> tuple[Any, ...]:
            return (x, y, z, stream, *fixed, arguments)

    if not describes:
        return Direct(start, prepare, in_c)
    unfold = _unfolded(launch.kernel.src.signature, meta)
    return Direct(
        checked_start(launch), lambda stream, given: unfold(*prepare(stream, given)), in_c
    )


def packed(launch: Launched) -> Packed | None:
    """None where this release of Triton, or this kernel, is not known to be launched so."""
    launcher, kernel = launch.kernel.run, launch.kernel
    minor = minor_of(installed_version() or "")
    if not _TESTED[0] <= minor <= _TESTED[1] or not _needs_no_more(launcher):
        return None
    warps, clusters, shared_bytes = kernel.packed_metadata
    cooperative = bool(launcher.launch_cooperative_grid)
    special = launcher.launch_pdl or (clusters != 1 and cooperative)
    values = None if special else _values(launch, minor)
    if values is None:
        return None
    parameters, pointers, maps = list[int](), list[int](), dict[int, tuple[bytes, int]]()
    for kind, value in values:
        if kind == "constexpr":
            continue
        if kind[0] == "*":
            pointers.append(len(parameters))
            parameters.append(0)
        elif kind in _BYTES:
            parameters.append(int.from_bytes(struct.pack(f"<{_BYTES[kind]}", value), "little"))
        elif kind == _MAP and (read := _bytes_of(value[0])) is not None:
            pointers.append(len(parameters))
            maps[len(parameters)] = read, value[1]
            parameters.append(0)
        else:
            return None
    parameters += [0, 0]  # Triton's own memory: for the whole launch, and for a profiler
    threads = _LANES * warps
    x, y, z = launch.grid  # of clusters
    return Packed(
        kernel.function, (x * clusters, y, z), threads, shared_bytes, tuple(parameters),
        tuple(pointers), maps, cooperative, clusters,
    )  # fmt: skip


def _values(launch: Launched, minor: tuple[int, int]) -> list[tuple[str, Any]] | None:
    """The type and the value of each argument, those of a descriptor one after the other: a map and
    its tensor's address, sizes, strides. None where they are not as Triton is known to do it."""
    kernel, given = launch.kernel, launch.arguments
    types = list(kernel.src.signature.values())
    if len(types) != len(given):
        return None
    if not any(map(_is_described, types)):
        return list(zip(types, given, strict=True))
    straight = direct(launch)
    if straight is None:
        return None
    described = [_expanded(kind, value) for kind, value in zip(types, given, strict=True)]
    kinds = [kind for kinds in described for kind in kinds]
    unfolded = straight.prepare(0, given)
    values = unfolded[-len(kinds) :] if minor == (3, 6) else unfolded[-1]
    pairs = zip(types, given, strict=True)
    of = iter([value for kind, value in pairs if _is_described(kind)])
    return [
        (kind, (value, next(of).base.data_ptr()) if kind == _MAP else value)
        for kind, value in zip(kinds, values, strict=True)
    ]


def _expanded(kind: str, value: Any) -> list[str]:
    if not _is_described(kind):
        return [kind]
    dimensions = len(value.shape)
    return [_MAP, *["i32"] * dimensions, *["i64"] * dimensions]


def _is_described(kind: str) -> bool:
    return kind.startswith("tensordesc")


def _bytes_of(tensor_map: Any) -> bytes | None:
    """Of the map in Triton's object, which ends with it; None for an object of another size. That
    it is the map is checked by RepeatedLaunches."""
    size = type(tensor_map).__basicsize__
    if size not in _OBJECTS_WITH_MAPS:
        return None
    return ctypes.string_at(id(tensor_map) + size - _MAP_BYTES, _MAP_BYTES)


def _needs_no_more(launcher: Any) -> bool:
    """It is Triton's own for CUDA, of a kernel that gets nothing but its arguments."""
    from triton.backends.nvidia.driver import CudaLauncher

    return (
        type(launcher) is CudaLauncher
        and not launcher.global_scratch_size
        and not launcher.profile_scratch_size
        and not getattr(launcher, "gsan_enabled", False)
    )


def _in_c(launch: Any) -> Any:
    """The function in C: this one, or what it calls once it has made descriptors."""
    if inspect.isfunction(launch):
        launch = inspect.getclosurevars(launch).nonlocals.get("launcher")
    return None if inspect.isfunction(launch) else launch


def _unfolded(signature: Any, meta: Any) -> Callable[..., tuple[Any, ...]]:
    """Triton's own wrapper, which makes descriptors, around what says what it is given."""
    from triton.backends.nvidia.driver import wrap_handle_tensordesc

    wrapped: Any = wrap_handle_tensordesc(lambda *given: given, dict(signature), meta)
    return wrapped  # type: ignore[no-any-return]
