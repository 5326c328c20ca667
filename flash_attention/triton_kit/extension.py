"""The compiled module `flash_attention._C`, which is loaded on a floor above (library.py)."""

from collections.abc import Callable
from types import ModuleType


def _nobody() -> ModuleType:
    raise ImportError("flash_attention.library has not been imported")


load: Callable[[], ModuleType] = _nobody
