"""Which releases of triton are taken, and what a refused one is told. tests/triton/releases.py runs
the kernels' tests with each."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from flash_attention.triton_kit.versions import (
    MINORS,
    REQUIREMENT,
    TESTED,
    TritonVersionError,
    minor_of,
    require_triton,
)

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("extra", ["triton", "test"])
def test_pip_installs_what_the_kernels_take(extra: str) -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    (asked,) = [item for item in extras[extra] if Requirement(item).name == "triton"]
    assert asked == REQUIREMENT


def test_the_range_holds_what_was_tested_and_has_no_gap() -> None:
    allowed = Requirement(REQUIREMENT).specifier
    assert all(version in allowed for version in TESTED)
    assert list(TESTED) == sorted(TESTED, key=Version)
    assert all(b == (a[0], a[1] + 1) for a, b in itertools.pairwise(MINORS))
    major, minor = MINORS[-1]
    assert f"{major}.{minor + 1}.0" not in allowed and f"{major}.{minor}.9" in allowed


def install(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("triton")
    module.__spec__ = importlib.machinery.ModuleSpec("triton", None)
    module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", module)


@pytest.mark.parametrize("version", [*TESTED, "3.6.1", "3.7.1.post1", "3.6.0+git1a2b3c"])
def test_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(version, monkeypatch)
    assert require_triton() == version


REFUSED = ["3.5.1", "3.10.0", "4.0.0", "2.3.1", "3.9.0rc1", "3.6", "unknown", "", "36.0.0"]


@pytest.mark.parametrize("version", REFUSED)
def test_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(version, monkeypatch)
    with pytest.raises(TritonVersionError) as caught:
        require_triton()
    message = str(caught.value)
    assert message.startswith(f"triton {version} is installed: the kernels are tested with 3.6, ")
    assert f'pip install "{REQUIREMENT}"' in message


def test_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TritonVersionError, match="triton is not installed; pip install"):
        require_triton()


def test_minor_releases() -> None:
    assert [minor_of(version) for version in TESTED[:3]] == [(3, 6), (3, 7), (3, 7)]


def test_the_pages_say_the_same() -> None:
    ends = [f"{major}.{minor}" for major, minor in (MINORS[0], MINORS[-1])]
    pages = ("README.md", "docs/support.md", "docs/kernels/04-gluon-and-triton-forward.md")
    texts = [(PROJECT.parent / page).read_text() for page in pages]
    assert all(" to ".join(ends) in text for text in texts)
    assert all(f"{', '.join(TESTED[:-1])} and {TESTED[-1]}" in text for text in texts[1:])
    assert REQUIREMENT in texts[2]
