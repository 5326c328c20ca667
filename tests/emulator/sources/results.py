"""What became of a planted bug, kept: a run that was interrupted goes on, and one after a change of
the emulator plants nothing that it need not."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

from flash_helpers.base.cache import cache_dir, publish_text, read_intact_text
from flash_helpers.base.paths import csrc_dir
from flash_helpers.codegen.sources import source_fingerprint

from .checks import Check
from .kernels import Kernel

_TESTS = Path(__file__).parents[2]
# Where the checks, and what they compare with, stand. A check's name says which problem it runs.
_CHECKS = (
    "emulator/attention.py", "emulator/campaign.py", "emulator/support.py",
    "emulator/ncu_counts.py", "emulator/test_attention_counts.py", "emulator/sm90/attention.py",
    "emulator/sm90/work.py", "forward/test_*_forward.py", "forward/test_rare_shapes.py",
    "forward/tensors.py", "guarded.py",
)  # fmt: skip
_PRODUCT = ("flash_helpers/emulator/**/*.py", "flash_helpers/check/*.py")


class Results:
    """Texts by what they depend on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kept(self, make: Callable[[], str], *parts: str) -> str:
        """What is kept under `parts`, or what `make` returns."""
        path = self.folder / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        if (found := read_intact_text(path)) is None:
            found = make()
            publish_text(found, path)
        return found

    def compiled(self, make: Callable[[], str], kernel: Kernel, include: Path) -> str:
        """The digest of a kernel's PTX with the headers as they are in `include`."""
        sources = source_fingerprint(kernel.unit, include)
        return self.kept(make, "compiled", sources, _compiler(), *kernel.flags())

    def checked(self, make: Callable[[], str], ptx: str, kernel: Kernel, check: Check) -> str:
        """What a check said of a kernel whose PTX has this digest."""
        own = [hashlib.sha256((_TESTS / file).read_bytes()).hexdigest() for file in check.files]
        return self.kept(make, "checked", ptx, kernel.entry, check.name, tools(), *own)


def results() -> Results:
    return Results(cache_dir("source_mutants"))


@functools.cache
def _compiler() -> str:
    from flash_helpers.compilers.nvcc_wheels import find_or_install_nvcc

    return find_or_install_nvcc().version


@functools.cache
def tools() -> str:
    """A digest of the emulator and of the checks: with another, results are found anew."""
    files = [*(csrc_dir() / "emulator").rglob("*.[ch]*")]
    for root, patterns in ((_TESTS, _CHECKS), (_TESTS.parent / "py", _PRODUCT)):
        files += [path for pattern in patterns for path in root.glob(pattern)]
    state = hashlib.sha256()
    for path in sorted(files):
        state.update(path.read_bytes())
    return state.hexdigest()
