"""Bugs planted in the text of a Triton kernel."""

from __future__ import annotations

import hashlib
import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from flash_attention.triton_kit.op import Op
from flash_attention.triton_kit.versions import installed_version, minor_of
from flash_helpers.emulator import EmulatorError

OpType = TypeVar("OpType", bound=Op[Any, Any])


def planted(
    op: OpType, module: ModuleType, old: str, new: str, *inside: ModuleType | None
) -> OpType:
    """The Op with kernels in whose source `old` was replaced, or in that of the last of modules of
    which theirs imports the first and each the next (`inside`). A class of its own, so that nothing
    that was compiled before is taken for it."""
    *importing, last = module, *filter(None, inside)
    mutant = _load(last, _replaced(last, old, new))
    for one in reversed(importing):
        package, name = last.__name__.split(".")[-2:]
        imported = re.search(rf"from \.+({package}\.)?{name} import", _source(one))
        assert imported, f"{one.__file__} does not import {last.__file__}"
        mutant = _load(one, _replaced(one, imported[0], f"from {mutant.__name__} import"))
        last = one

    class Planted(type(op)):  # type: ignore[misc]
        def kernel_for(self, config: Any, problem: Any) -> Any:
            return getattr(mutant, super().kernel_for(config, problem).fn.__name__)

    made: OpType = Planted(**vars(op))
    return made


def _source(module: ModuleType) -> str:
    assert module.__file__ is not None
    return Path(module.__file__).read_text()


def _replaced(module: ModuleType, old: str, new: str) -> str:
    source = _source(module)
    assert old in source, f"{old!r} is not in {module.__file__}"
    return source.replace(old, new)


def _load(module: ModuleType, source: str) -> ModuleType:
    """Under a name that is the same in every run, and no file's: it is part of the PTX, by which
    the emulator finds again what it compiled."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    name = f"{module.__name__}_planted_{digest}"
    made = ModuleType(name)
    made.__package__ = module.__package__
    sys.modules[name] = made
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)  # where Triton reads the text
    exec(compile(source, name, "exec", dont_inherit=True), vars(made))
    return made


def is_put_back(old: str) -> bool:
    """Whether this release of Triton adds what was taken away, so that there is no bug to find:
    3.7 knows itself where generic writes need a fence before asynchronous copies."""
    return "fence_async_shared" in old and minor_of(installed_version() or "") == (3, 7)


def found(run: Callable[[], bool]) -> bool:
    """Whether the checks see the bug: the emulator refuses, or `run` says that the result is
    wrong."""
    try:
        return not run()
    except EmulatorError:
        return True
