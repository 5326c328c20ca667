"""What Triton made of a kernel, kept in the cache directory for the next process. Triton's own
cache holds whatever is on the disk for right; here each file is checked."""

import functools
import hashlib
import sys
import zlib
from pathlib import Path

from triton.runtime.cache import RemoteCacheBackend

from flash_helpers.base.cache import cache_dir, publish_bytes, read_intact_bytes


@functools.cache
def _sources() -> str:
    """The digest of these sources, in this place, which the PTX names: Triton's key is the kernel
    and all that it calls, but for what Python computes while it is compiled."""
    package = Path(__file__).parents[1]
    state = hashlib.sha256(f"{package}\0{sys.version}".encode())
    for source in sorted(package.rglob("*.py")):
        state.update(hashlib.sha256(source.read_bytes()).digest())
    return state.hexdigest()[:16]


class Kept(RemoteCacheBackend):  # type: ignore[misc]
    """One kernel's files. Triton copies them into its own cache, where it reads them."""

    def __init__(self, key: str) -> None:
        self._key = key

    def _path(self, name: str) -> Path:
        return cache_dir("triton") / f"{_sources()}-{self._key}-{name}"

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """All, or none of them."""
        found = {name: read_intact_bytes(self._path(name)) for name in filenames}
        whole = {name: zlib.decompress(data) for name, data in found.items() if data is not None}
        return whole if len(whole) == len(found) else {}

    def put(self, filename: str, data: bytes) -> None:
        publish_bytes(zlib.compress(data, 1), self._path(filename))
