"""Where kernels' machine code comes from: a built extension, a cubin, a saved listing, or nvcc."""

import difflib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from flash_helpers.build.kernel_ptx import DEFAULT_ARCHITECTURE, kernel_cubin
from flash_helpers.kernels.contract import KernelConfig

from .disassembler import SassError, cuobjdump
from .listing import Listing, Usage, parse_listings, parse_usage

_TEXT_SUFFIXES = (".sass", ".txt")


@dataclass(frozen=True)
class Code:
    """The kernels of one or more files, read on demand."""

    files: tuple[Path, ...]

    @cached_property
    def _by_file(self) -> dict[Path, list[Listing]]:
        return {file: _listings_of(file) for file in self.files}

    @property
    def listings(self) -> list[Listing]:
        return [listing for found in self._by_file.values() for listing in found]

    @cached_property
    def usage(self) -> dict[tuple[str, str], Usage]:
        """(kernel, architecture) -> its registers and memory; not known from listings."""
        binaries = [file for file in self.files if file.suffix not in _TEXT_SUFFIXES]
        found = {}
        for file in binaries:
            # The text of a cubin does not name the architecture: there is only one.
            own = self._by_file[file][0].architecture
            for usage in parse_usage(cuobjdump("-res-usage", file=file)):
                usage = replace(usage, architecture=usage.architecture or own)
                found[usage.kernel, usage.architecture] = usage
        return found

    def select(self, names: Sequence[str] = (), architecture: str = "") -> list[Listing]:
        """The kernels that `names` (exact, or shell patterns) name, in that order; without names
        all of them. SassError if one names nothing."""
        fitting = [
            listing for listing in self.listings
            if not architecture or listing.architecture == architecture
        ]  # fmt: skip
        if not fitting:
            there = sorted({listing.architecture for listing in self.listings})
            raise SassError(f"no code for {architecture} here: there is {', '.join(there)}")
        if not names:
            return fitting
        found: dict[tuple[str, str], Listing] = {}
        for name in names:
            matching = [x for x in fitting if x.name == name or fnmatchcase(x.name, name)]
            if not matching:
                known = sorted({listing.name for listing in fitting})
                (close,) = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
                raise SassError(
                    f"{name} is not among the {len(known)} kernels here; the nearest is {close}"
                )
            found |= {(x.name, x.architecture): x for x in matching}
        return list(found.values())


def _listings_of(file: Path) -> list[Listing]:
    if file.suffix in _TEXT_SUFFIXES:
        try:
            text = file.read_text()
        except OSError as error:
            raise SassError(f"cannot read {file}: {error.strerror}") from error
    else:
        text = cuobjdump("-sass", file=file)
    try:
        found = parse_listings(text)
    except ValueError as error:
        raise SassError(f"{file}: {error}") from error
    if not found:
        raise SassError(f"{file} holds no kernel (a listing is what `cuobjdump -sass` prints)")
    return found


def built_extension() -> Path:
    """flash_attention._C as it would be imported; nothing is imported."""
    spec = importlib.util.find_spec("flash_attention")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(folder).glob("_C.*.so"))
        if found:
            return found[0]
    raise SassError(
        "flash_attention._C is not built: python -m flash_helpers.build, or name a file, or "
        "--compile the kernels from the sources"
    )


def compiled(configs: Iterable[KernelConfig], architecture: str = DEFAULT_ARCHITECTURE) -> Code:
    """The kernels as nvcc compiles them now, from the cache where it did before."""
    return Code(tuple(kernel_cubin(config, architecture) for config in configs))
