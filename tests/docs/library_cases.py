"""What the rows of docs/support.md mean, as code: FLASH_ATTENTION_LIBRARY."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flash_attention import library

Load = Callable[[Path, pytest.MonkeyPatch], object]


def load(path: str | Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv(library.LIBRARY_VARIABLE, str(path))
    return library.load_library.__wrapped__()


def load_file(name: str = "_C.so", mode: int = 0o755) -> Load:
    def provoke(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
        (folder / name).write_text("no ELF")
        (folder / name).chmod(mode)
        return load(folder / name, monkeypatch)

    return provoke


def _foreign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Only root can give files away; for others a file of theirs gets another reader."""
    (folder / "_C.so").write_text("")
    (folder / "_C.so").chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder / "_C.so", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    return load(folder / "_C.so", monkeypatch)


LIBRARY: Mapping[str, Load] = {
    "a relative path": lambda _, patch: load("build/_C.so", patch),
    "no such file": lambda folder, patch: load(folder / "_C.so", patch),
    "a folder": load,
    "a file that group or others can write": load_file(mode=0o775),
    "a file of another user, unless of root": _foreign,
    "a name that does not end like an extension module": load_file("_C.txt"),
    "a `.so` that is not a library": load_file(),
}
