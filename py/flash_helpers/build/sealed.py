"""What compilers and the linker left in the build directory, and whether it is still that.

ninja looks at time stamps only: an object that was emptied or cut is as good to it as a whole one,
so the next link fails, as does every later one. record_compile.sh seals each file in the log beside
it.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_SEAL = b"\nsealed "


def drop_damaged(directory: Path, outputs: Iterable[str]) -> list[str]:
    """Removes those of the outputs (relative to the build directory) that are not, or no longer,
    what their log was written for, so that ninja makes them again. Returns their names; one of
    which there is nothing is not damaged."""
    names = list(outputs)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        intact = pool.map(is_intact, (directory / name for name in names))
        damaged = [name for name, whole in zip(names, intact, strict=True) if not whole]
    there = [name for name in damaged if os.path.lexists(directory / name)]
    for name in damaged:
        remove(directory / name)
        remove(log_of(directory / name))
    return there


def is_intact(output: Path) -> bool:
    """Whether file and log are both there, as record_compile.sh left them."""
    try:
        text, _, seal = log_of(output).read_bytes().rpartition(_SEAL)
        digest = hashlib.blake2b(text)
        digest.update(output.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return seal == digest.hexdigest().encode() + b"\n"


def log_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.log")


def remove(path: Path) -> None:
    """Whatever it is, in the build directory, where everything can be made again."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
