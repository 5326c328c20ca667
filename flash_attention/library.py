"""Loads the compiled kernels: `flash_attention._C`, or the build that an environment variable
names."""

import importlib
import importlib.util
import os
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from .triton_kit import extension

# Another build of the extension module, so that a deliberately broken one can be put under the
# tests.
LIBRARY_VARIABLE = "FLASH_ATTENTION_LIBRARY"


class LibraryNotFoundError(ImportError):
    """The compiled kernels are not there, or are not safe to load."""


@dataclass(frozen=True)
class LibraryInfo:
    """What the loaded build is."""

    path: str
    kernel_set: str  # the KERNELS of the build
    architectures: tuple[str, ...]
    n_kernels: int
    fingerprint: str


@cache
def load_library() -> ModuleType:
    """The extension module. It links neither libtorch nor libcuda, so it loads without a GPU."""
    override = os.environ.get(LIBRARY_VARIABLE)
    if override:
        return _load_from(Path(override))
    try:
        return importlib.import_module("flash_attention._C")
    except ModuleNotFoundError as error:
        raise LibraryNotFoundError(
            "flash_attention._C is not built: run `make run`, `python setup.py install` or "
            f"`pip install --no-build-isolation .`, or set {LIBRARY_VARIABLE} to a built _C*.so"
        ) from error


def library_info() -> LibraryInfo:
    """Which build is loaded, with which kernels and for which architectures."""
    library = load_library()
    return LibraryInfo(
        path=str(library.__file__),
        kernel_set=library.kernel_set(),
        architectures=tuple(library.architectures()),
        n_kernels=len(library.kernel_names()),
        fingerprint=library.fingerprint(),
    )


def _load_from(path: Path) -> ModuleType:
    check_trusted(path)
    spec = importlib.util.spec_from_file_location("flash_attention._C", path)
    if spec is None or spec.loader is None:
        raise LibraryNotFoundError(f"{LIBRARY_VARIABLE}={path} is not an extension module (*.so)")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_trusted(path: Path) -> None:
    """Loading a library runs its code: only a file that nobody else can have written is taken."""
    if not path.is_absolute():
        raise LibraryNotFoundError(f"{LIBRARY_VARIABLE}={path} must be an absolute path")
    try:
        status = path.stat()
    except OSError as error:
        raise LibraryNotFoundError(
            f"{LIBRARY_VARIABLE}={path} cannot be read: {error.strerror}"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise LibraryNotFoundError(f"{LIBRARY_VARIABLE}={path} is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise LibraryNotFoundError(
            f"{LIBRARY_VARIABLE}={path} belongs to user {status.st_uid}, not to this one "
            f"({os.geteuid()}) or root: refusing to load it"
        )
    folder = path.parent.stat()
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
        raise LibraryNotFoundError(
            f"{LIBRARY_VARIABLE}={path} lies in a folder that others can write: refusing to load it"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LibraryNotFoundError(
            f"{LIBRARY_VARIABLE}={path} can be written by others (mode "
            f"{stat.S_IMODE(status.st_mode):o}): refusing to load it; chmod go-w it first"
        )


extension.load = load_library
