"""Bugs planted in the text of a Triton kernel."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from flash_attention.triton_kit.op import Op
from flash_helpers.emulator import EmulatorError

OpType = TypeVar("OpType", bound=Op[Any, Any])
_NUMBERS = count()


def planted(op: OpType, module: ModuleType, old: str, new: str, folder: Path) -> OpType:
    """The Op with kernels in whose source `old` was replaced. A class of its own, so that nothing
    that was compiled before is taken for it."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert old in source, f"{old!r} is not in {module.__file__}"
    mutant = _load(module, source.replace(old, new), folder)

    class Planted(type(op)):  # type: ignore[misc]
        def kernel_for(self, config: Any, problem: Any) -> Any:
            return getattr(mutant, super().kernel_for(config, problem).fn.__name__)

    made: OpType = Planted(**vars(op))
    return made


def _load(module: ModuleType, source: str, folder: Path) -> ModuleType:
    name = f"{module.__name__}_planted_{next(_NUMBERS)}"
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def found(run: Callable[[], bool]) -> bool:
    """Whether the checks see the bug: the emulator refuses, or `run` says that the result is
    wrong."""
    try:
        return not run()
    except EmulatorError:
        return True
