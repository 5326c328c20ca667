"""The --arg of the command line: kernel arguments as text, and the memory that they point to.

    NAME:TYPE=NUMBER                a scalar: n:int32=5, x:float32=-1.5, flags:uint8=0xff
    NAME:TYPE[SHAPE]=START          an array that the kernel may only read
    NAME:TYPE[SHAPE]=START->FILE    one that it may write; saved to FILE (.npy) afterwards
    NAME:TYPE[SHAPE]=START->        one that it may write, not kept

SHAPE is 1024 or 64,128. START is FILE.npy, zeros, ones, random or random:SEED; left out before ->,
every byte is 0xFF, which is NaN: what the kernel does not write shows.
"""

from __future__ import annotations

import io
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .launch import MemoryRange

if TYPE_CHECKING:
    import numpy as np

INTEGER_BITS = {f"{kind}int{bits}": bits for kind in ("", "u") for bits in (8, 16, 32, 64)}
TYPES = (*INTEGER_BITS, "float16", "float32", "float64")
_ARRAY_ALIGNMENT = 256  # what cudaMalloc gives
_ARGUMENT = re.compile(
    r"(?P<name>[A-Za-z_]\w*):(?P<type>\w+)(?:\[(?P<shape>[^\]]*)\])?\s*=(?P<value>.*)", re.S
)
_FORMS = "NAME:TYPE=NUMBER, NAME:TYPE[SHAPE]=START or NAME:TYPE[SHAPE]=START->FILE.npy"


class UsageError(ValueError):
    """The command line asks for something that does not exist."""


@dataclass(frozen=True)
class Argument:
    """One --arg, read but not yet acted on."""

    name: str
    type: str
    shape: tuple[int, ...] | None  # None: a scalar
    start: str  # of a scalar, its number
    written: bool = False
    target: str = ""  # the file that receives the array, "" for none


def parse_argument(text: str) -> Argument:
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an argument; the forms: {_FORMS}")
    name, type_, value = match["name"], match["type"], match["value"].strip()
    if type_ not in TYPES:
        raise UsageError(f"{name}: no type {type_!r}; the types: {', '.join(TYPES)}")
    if match["shape"] is None:
        _number(name, type_, value)
        return Argument(name, type_, None, value)
    shape = _shape(name, match["shape"])
    start, arrow, target = (part.strip() for part in value.partition("->"))
    if not start and not arrow:
        raise UsageError(f"{name}: no start value; {_starts()}, or -> for an output")
    if target and not target.endswith(".npy"):
        raise UsageError(f"{name}: {target!r} cannot be written: the file must end in .npy")
    if start and not re.fullmatch(r"zeros|ones|random(:\d{1,19})?|.*\.npy", start):
        raise UsageError(f"{name}: no start value {start!r}; {_starts()}")
    return Argument(name, type_, shape, start, bool(arrow), target)


def _starts() -> str:
    return "one of FILE.npy, zeros, ones, random, random:SEED"


def _shape(name: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\s*[1-9]\d{0,12}\s*(,\s*[1-9]\d{0,12}\s*)*", text, re.A):
        raise UsageError(f"{name}: no shape [{text}]; expected [1024] or [64,128], all positive")
    return tuple(int(part) for part in text.split(","))


def _number(name: str, type_: str, text: str) -> int | float:
    try:
        if type_ not in INTEGER_BITS:
            return float(text)
        value, bits = int(text, 0), INTEGER_BITS[type_]
    except ValueError:
        raise UsageError(f"{name}: {text!r} is no {type_}") from None
    low, high = (0, 2**bits) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    if not low <= value < high:
        raise UsageError(f"{name}: {text} does not fit {type_}: {low} to {high - 1}")
    return value


@dataclass(frozen=True)
class Prepared:
    """An argument in memory: the bytes of the parameter, and the array that it points to."""

    argument: Argument
    parameter: bytes
    array: np.ndarray[Any, Any] | None = None
    note: str = ""  # for the user: the seed

    @property
    def memory(self) -> MemoryRange | None:
        if self.array is None:
            return None
        item = self.argument
        return MemoryRange(self.array.ctypes.data, self.array.nbytes, item.written, item.name)

    def content(self) -> bytes:
        """What is written into the target file."""
        import numpy as np

        assert self.array is not None, "the parser gives only arrays a target"
        data = io.BytesIO()
        np.save(data, self.array, allow_pickle=False)
        return data.getvalue()


def prepare(argument: Argument) -> Prepared:
    import numpy as np

    dtype = np.dtype(argument.type)
    if argument.shape is None:
        number = _number(argument.name, argument.type, argument.start)
        with np.errstate(over="ignore"):
            return Prepared(argument, np.array(number, dtype).tobytes())
    array = _aligned(argument, dtype)
    note = _fill(argument, array)
    return Prepared(argument, array.ctypes.data.to_bytes(8, "little"), array, note)


def _aligned(argument: Argument, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Memory of its own, so that an index past its end is in no other array."""
    import numpy as np

    assert argument.shape is not None
    n_bytes = dtype.itemsize
    for size in argument.shape:
        n_bytes *= size
    try:
        buffer = np.full(n_bytes + 2 * _ARRAY_ALIGNMENT, 0xFF, np.uint8)
    except (MemoryError, ValueError):
        raise UsageError(f"{argument.name}: no memory for {n_bytes} bytes") from None
    first = -buffer.ctypes.data % _ARRAY_ALIGNMENT
    return buffer[first : first + n_bytes].view(dtype).reshape(argument.shape)


def _fill(argument: Argument, array: np.ndarray[Any, Any]) -> str:
    import numpy as np

    start = argument.start
    if start.endswith(".npy"):
        array[...] = _load(argument, array)
    elif start in ("zeros", "ones"):
        array[...] = start == "ones"
    elif start:
        seed = int(start.partition(":")[2] or secrets.randbits(32))
        rng = np.random.default_rng(seed)
        if array.dtype.kind == "f":
            array[...] = rng.standard_normal(array.shape)
        else:
            array[...] = rng.integers(-100 if array.dtype.kind == "i" else 0, 101, array.shape)
        return f"{argument.name}: seed {seed} (repeat with random:{seed})"
    return ""


def _load(argument: Argument, wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        found = np.load(argument.start, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{argument.name}: cannot read {argument.start}: {error}") from None
    if not isinstance(found, np.ndarray) or (found.shape, found.dtype) != (
        wanted.shape,
        wanted.dtype,
    ):
        actual = f"{found.dtype} {list(found.shape)}" if hasattr(found, "shape") else "an archive"
        raise UsageError(
            f"{argument.name}: {argument.start} holds {actual}, "
            f"not {argument.type} {list(wanted.shape)}"
        )
    return found
