"""PyTorch, imported when something of it is first used: builds and most tools do without it.

    from flash_helpers.base.lazy import torch

A module that annotates with it needs `from __future__ import annotations`, or it is used at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
else:

    class _Lazy:
        """Stands for a module. Raises ModuleNotFoundError on use where that is not installed."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(importlib.import_module(self._name), attribute)

    torch = _Lazy("torch")
