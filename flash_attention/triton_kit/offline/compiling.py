"""What compiling a kernel for an architecture that is named has to set up."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def torch_name(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {dtype}: allowed are {' and '.join(_DTYPES)}")
    return _DTYPES[dtype]


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """Triton's compile cache in a folder that goes away: nothing stale is inspected, and nothing
    stays behind."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        yield
