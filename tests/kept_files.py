"""Files that tests compile, kept in the cache directory from run to run: whole, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from flash_helpers.base.cache import build_once, cache_dir, is_intact, publish_built


def kept(folder: str, suffix: str, parts: Iterable[str], build: Callable[[Path], None]) -> Path:
    """The file that `build` writes where it is told. `parts` is all that it is made of: the file of
    the same parts is not built again, also not by another worker at the same time."""
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = cache_dir("tests", folder) / f"{key}{suffix}"

    def load() -> Path | None:
        return path if is_intact(path) else None

    def built() -> Path:
        publish_built(build, path)
        return path

    return build_once(path, load, built)
