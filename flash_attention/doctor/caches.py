"""The folders of the cache: whether they can be written, how full they are, and emptying them."""

import contextlib
import os
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flash_helpers.base.cache import cache_dir, configured_directory
from flash_helpers.base.outputs import check_outputs
from flash_helpers.base.trusted_folders import check_above, check_private
from flash_helpers.compilers.nvcc_wheels import install_folder

from .records import Check

MEASURED = "tuning"  # the tuner's table: hours of a GPU, where all else is made again by itself
_NVCC = install_folder({"FLASH_ATTENTION_CACHE_DIR": "/"}).name  # wherever the cache is
FOLDERS = (
    *("emulator", "jit", "profiling", "ptx", "sass", "triton", "triton_tuning"),
    *(MEASURED, _NVCC),
)


class Contents(NamedTuple):
    n_files: int
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.n_files:,} files, {self.n_bytes:,} bytes"


def checks() -> list[Check]:
    remedy = "do as it says, or set FLASH_ATTENTION_CACHE_DIR to a folder of your own"
    rows = [Check("cache", name, partial(_filled, name), remedy) for name in FOLDERS]
    return [Check("cache", "place", _writable, remedy), *rows]


def contents(folder: Path) -> Contents:
    """Nothing where there is no folder. What goes away meanwhile does not count."""
    sizes = []
    for above, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(os.lstat(Path(above, file)).st_size)
    return Contents(len(sizes), sum(sizes))


def clear(folder: Path) -> Contents:
    """Removes what lies in it, and says how much; the folder stays, as others may be writing there.
    Raises UnsafeCacheError for one that is a link or could be changed by others, and OSError."""
    before = contents(folder)
    if os.path.lexists(folder):
        check_private(folder)
        check_above(folder)
        for entry in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                is_folder = entry.is_dir() and not entry.is_symlink()
                shutil.rmtree(entry) if is_folder else entry.unlink()
    left = contents(folder)
    return Contents(before.n_files - left.n_files, before.n_bytes - left.n_bytes)


def _writable() -> str:
    check_outputs({}, {"the cache": cache_dir()})
    return str(cache_dir())


def _filled(name: str) -> str:
    return str(contents(configured_directory() / name))
