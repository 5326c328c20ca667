"""Choosing a kernel by what was measured: `tuned_config`."""

import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from flash_helpers.base.cache import cache_dir
from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.architecture import parse_arch
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.family import Capability
from flash_helpers.kernels.registry import by_preference, violations

from . import jit
from .interface import kernel_ids
from .library import LibraryNotFoundError, load_library
from .tuning_table import Entry, TuningTableError, read_table

TABLE_VARIABLE = "FLASH_ATTENTION_TUNING"
PACKAGED_TABLE = Path(__file__).with_name("tuning_default.json")


@dataclass(frozen=True)
class Choice:
    """A kernel, and on whose word."""

    config: KernelConfig
    table: str
    entry: Entry
    reason: str  # how the entry fits the GPU: measured on it, or on another


def tuned_config(
    dtype: DType | torch.dtype | str,
    d_head: int,
    seq_len_q: int,
    seq_len_k: int | None = None,
    *,
    causal: bool = False,
    device: torch.device | str | int | None = None,
    table: str | os.PathLike[str] | None = None,
    family: str | None = None,
    on_first_use: bool = True,
) -> KernelConfig:
    """The configuration to give to `forward`: the fastest that was measured on this GPU for this
    dtype, head size and length, of those that are in this build. One that runs the kernel that was
    timed is taken first: for whole blocks, if the lengths are multiples of them, or the general
    one, if that was timed. Then comes any whose general kernel, which takes any lengths and
    `causal`, is there. Where nothing was measured with the mask, what is fast without it is taken.
    Where the build has none that serves, and kernels can be compiled on first use (jit.py), it is
    the fastest of all that the GPU takes; not so with `on_first_use=False`.

    Asked in turn: the table at `table` or $FLASH_ATTENTION_TUNING, the user's own (written by
    tools/benchmark/autotune.py into the cache directory), the packaged one; in each, first
    entries of this GPU, then of its compute capability; at last any of any table. `device` is the
    CUDA device, by default the current one; without one any GPU's entry is taken. For the device
    "cpu", the emulator, a build is not asked. `family` is a name of kernels.registry.families(); by
    default, in each table, the one that is made for the GPU, then those that run anywhere.

    Raises:
        LookupError: no table has a kernel for this problem; the message says what they have.
        TuningTableError, OSError: the table that was named cannot be used.
    """
    return tuned_choice(
        dtype, d_head, seq_len_q, seq_len_k,
        causal=causal, device=device, table=table, family=family, on_first_use=on_first_use,
    ).config  # fmt: skip


def tuned_choice(
    dtype: DType | torch.dtype | str,
    d_head: int,
    seq_len_q: int,
    seq_len_k: int | None = None,
    *,
    causal: bool = False,
    device: torch.device | str | int | None = None,
    table: str | os.PathLike[str] | None = None,
    family: str | None = None,
    on_first_use: bool = True,
) -> Choice:
    """`tuned_config` with where it comes from."""
    wanted = _dtype(dtype)
    tables = list(_tables(table))
    gpu, capability = gpu_of(device)
    seq_len_k = seq_len_q if seq_len_k is None else seq_len_k
    matches: list[tuple[str, Callable[[Entry], bool]]] = [
        (f"measured on {gpu}", lambda entry: entry.gpu == gpu),
        (
            f"measured on a GPU of compute capability {capability}",
            lambda entry: entry.compute_capability == capability,
        ),
        ("measured on another GPU", lambda entry: True),
    ]
    measured_with = (True, False) if causal else (False,)
    parsed = parse_arch(capability) if capability else None
    asked = [f.NAME for f in by_preference(parsed) if f.preference(parsed)]
    families = [family] if family else asked  # by default in their order
    entries = [
        (reason, path, entry)
        for reason, is_match in (matches if gpu else matches[2:])
        for path, with_mask, by in itertools.product(tables, measured_with, families)
        for entry in _entries(path)
        if (entry.dtype, entry.d_head, entry.causal, entry.family)
        == (wanted.name, d_head, with_mask, by)
        and is_match(entry)
    ]
    for is_there in _what_is_there(device, parsed, on_first_use):
        for reason, path, entry in entries:
            config = _fitting(entry, seq_len_q, seq_len_k, causal, is_there)
            if config is not None:
                return Choice(config, str(path), entry, reason)
    raise LookupError(_explain(tables, wanted, d_head, seq_len_q, seq_len_k, causal))


def user_table() -> Path:
    """Where the tuner writes by default. The directory is private to the user (checked)."""
    return cache_dir("tuning") / "tuning.json"


def _fitting(
    entry: Entry,
    seq_len_q: int,
    seq_len_k: int,
    causal: bool,
    is_there: Callable[[KernelConfig, Variant], bool],
) -> KernelConfig | None:
    if not entry.covers(seq_len_q):
        return None
    unlike_measured = None  # its kernel for whole blocks was timed, and its general one is needed
    for config in entry.configs:
        needed = config.variant_for(seq_len_q, seq_len_k, causal)
        there = is_there(config, needed)
        if there and (needed is Variant.WHOLE or needed is _timed_variant(entry, config)):
            return config
        if there and unlike_measured is None:
            unlike_measured = config
    return unlike_measured


def _what_is_there(
    device: torch.device | str | int | None, capability: Capability | None, on_first_use: bool
) -> Iterator[Callable[[KernelConfig, Variant], bool]]:
    """Which kernels count: those of the build, then those that are compiled on first use; all for
    the emulator, and where there is no build."""
    built = None if _is_cpu(device) else built_variants()
    if built is None:
        yield lambda config, variant: variant in config.built_variants()
        return
    yield lambda config, variant: variant.value in built.get(config.kernel_name(), ())
    if on_first_use and jit.is_on():
        yield (
            lambda config, variant: (
                variant in config.built_variants() and not violations(config, capability)
            )
        )


def _timed_variant(entry: Entry, config: KernelConfig) -> Variant | None:
    """Which of the configuration's kernels the entry's measurement timed; None: it does not say."""
    length = entry.measured_at
    return None if length is None else config.variant_for(length, length, entry.causal)


def _tables(named: str | os.PathLike[str] | None) -> Iterator[Path]:
    chosen = named or os.environ.get(TABLE_VARIABLE)
    if chosen:
        path = Path(chosen)
        _read(path, path.stat().st_mtime_ns)  # raises: a table that was asked for must be good
        yield path
    try:
        own = user_table()
        if own.is_file():
            _read(own, own.stat().st_mtime_ns)
            yield own
    except (TuningTableError, OSError, RuntimeError) as error:
        warnings.warn(f"the user's tuning table is not used: {error}", stacklevel=4)
    yield PACKAGED_TABLE


def _entries(path: Path) -> Sequence[Entry]:
    return _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, mtime_ns: int) -> Sequence[Entry]:
    """A table is parsed once for every time that it changes."""
    return read_table(path)


def _dtype(dtype: DType | torch.dtype | str) -> DType:
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, torch.dtype):
        return DType.from_torch_dtype(dtype)
    return DType.from_string(dtype)


def _is_cpu(device: torch.device | str | int | None) -> bool:
    return device is not None and not isinstance(device, int) and str(device) == "cpu"


def gpu_of(device: torch.device | str | int | None) -> tuple[str, str]:
    """(name, compute capability); empty without a CUDA device."""
    if _is_cpu(device) or not torch.cuda.is_available():
        return "", ""
    major, minor = torch.cuda.get_device_capability(device)
    return torch.cuda.get_device_name(device), f"{major}.{minor}"


@cache
def built_variants() -> Mapping[str, Sequence[str]] | None:
    """The variants that this build has of each configuration, by name; None where nothing is built
    (the emulator compiles any)."""
    try:
        ids = kernel_ids()
    except LibraryNotFoundError:
        return None
    return {name: load_library().variants(kernel_id) for name, kernel_id in ids.items()}


def _explain(
    tables: Sequence[Path], dtype: DType, d_head: int, seq_len_q: int, seq_len_k: int, causal: bool
) -> str:
    entries = [entry for path in tables for entry in _entries(path)]
    known = sorted({f"{e.dtype} {e.d_head}{' causal' if e.causal else ''}" for e in entries})
    return (
        f"no tuning table has a kernel of this build for {dtype.name}, d_head {d_head}, sequences "
        f"{seq_len_q} and {seq_len_k}{', causal' if causal else ''}: they know "
        f"{', '.join(known) or 'nothing'} ({', '.join(map(str, tables))}). A kernel that is not "
        "general takes multiples of its blocks, without causal; tools/benchmark/autotune.py "
        "measures, or name a kernel."
    )
