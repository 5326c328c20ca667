"""No Python of the product outside a family's folder and the registry names a family."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from flash_helpers.kernels.registry import FAMILIES

from .markdown import ROOT
from .test_layers import BUILT_ON

# Where it is allowed to: the list of the families, and the seeds' module name, which users import.
# The emulator's folder sm90 models the units of an architecture, which any kernel may use.
LISTS = ("py/flash_helpers/kernels/registry.py", "py/flash_helpers/kernel_configs.py")
EMULATOR = "py/flash_helpers/emulator/"


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Folder -> what names its family: its name, "the ... family", and the classes in it.
    (Ampere and Hopper alone are GPUs.)"""
    found = {}
    for family in FAMILIES:
        folder = type(family).__module__.rsplit(".", 1)[0].replace(".", "/")
        classes = {
            name
            for path in (ROOT / "py" / folder).glob("*.py")
            for name in re.findall(r"^class (\w+)", path.read_text(), re.M)
        }
        words = [family.NAME, f"{family.TITLE} family", *sorted(classes)]
        found[f"py/{folder}/"] = re.compile(
            rf"\b({'|'.join(map(re.escape, words))})", re.IGNORECASE
        )
    return found


def belongs(name: str, folder: str) -> bool:
    """Whether it is a file of the family's folder, or of one in whose name the family's stands: the
    same architecture's other pass, the fused one, and what serves; or one that is built on it."""
    for user, base in BUILT_ON.items():
        if f"/{user}/" in name and belongs(name.replace(f"/{user}/", f"/{base}/"), folder):
            return True
    others = (folder.replace("_fwd/", other) for other in ("_bwd", "_serve"))
    return name.startswith((folder, *others, folder[:-1] + "_"))


def wrong_lines(name: str, text: str) -> list[str]:
    if name in LISTS or name.startswith(EMULATOR):
        return []
    return [
        f"{name}:{number} {line.strip()}"
        for folder, pattern in patterns().items()
        if not belongs(name, folder)
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def sources() -> list[Path]:
    folders = ("py", "flash_attention", "tools")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_nobody_names_a_family() -> None:
    assert len(sources()) > 200
    found = [
        line
        for path in sources()
        for line in wrong_lines(str(path.relative_to(ROOT)), path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flash_attention/dispatch.py", "from flash_helpers.kernels.sm90_fwd import config"),
        ("py/flash_helpers/build/plan.py", "if config.FAMILY == 'sm80':"),
        ("py/flash_helpers/kernels/sm80_fwd/names.py", "# as the Hopper family does"),
        ("tools/benchmark/x.py", "isinstance(config, FlashForwardKernelConfig)"),
        ("py/flash_lab/bench/tuning.py", "isinstance(config, PreviousKernelConfig)"),
    ],
)
def test_a_planted_name_is_found(name: str, text: str) -> None:
    assert wrong_lines(name, f"\n{text}\n")
