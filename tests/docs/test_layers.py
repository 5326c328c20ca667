"""The tree of the C++ sources: core < ptx < tile < one room for each family of kernels. A header
includes what stands below it, no family sees another (but a backward pass what its architecture's
forward pass uses, and those of BUILT_ON), and nobody outside its rooms names one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from flash_helpers.kernel_configs import FAMILIES

from .markdown import ROOT

CSRC = ROOT / "csrc"
FLOORS = ("core", "ptx", "tile")  # each includes only those before it; the families stand on all
# How a family is called in running text, beside its name. sm_80 and sm_90a are architectures.
WORDS = {
    "sm80": "ampere",
    "sm90": "hopper",
    "sm80_bwd": "ampere.backward",
    "sm80_bwd_fused": "ampere.fused.backward",
    "sm90_bwd": "hopper.backward",
    "sm90_bwd_cluster": "hopper.backward.by.pairs",
    "sm90_bwd_fused": "hopper.fused.backward",
    "sm90_bwd_fused_serve": "hopper.fused.serving.backward",
    "sm80_serve": "ampere.serving",
    "sm80_serve_mla": "ampere.mla",
    "sm80_bwd_serve": "ampere.serving.backward",
    "sm90_serve": "hopper.serving",
    "sm90_serve_mla": "hopper.mla",
}
# A family that has the tiles, shares and parts of another architecture's sees what that one sees.
BUILT_ON = {"sm90_serve_mla": "sm80_serve_mla"}


def may_include(user: tuple[str, ...], used: tuple[str, ...]) -> bool:
    """Both are folders below flash/."""
    if used[0] in FLOORS:
        return user[0] not in FLOORS or FLOORS.index(used[0]) <= FLOORS.index(user[0])
    if user[0].startswith(f"{used[0]}_"):
        return True
    if user[0] in BUILT_ON and may_include((BUILT_ON[user[0]],), used):
        return True
    return user[: len(used)] == used  # of a family: its own folder, and those around it


def wrong_includes(flash: Path) -> list[str]:
    found = []
    for path in sorted(path for path in flash.rglob("*") if path.is_file()):
        user = path.relative_to(flash)
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE):
            first, *used = Path(name).parts
            if first != "flash" or not may_include(user.parts[:-1], tuple(used[:-1])):
                found.append(f"{user} includes {name}")
    return found


def test_headers_include_only_what_is_below() -> None:
    flash = CSRC / "include" / "flash"
    assert {path.name for path in flash.iterdir()} == {*FLOORS, *FAMILIES}
    assert wrong_includes(flash) == []


@pytest.mark.parametrize(
    ("user", "used"),
    [
        ("sm80/config.h", "flash/sm90/config.h"),
        ("sm90/softmax.cuh", "flash/sm80/forward/softmax.cuh"),
        ("sm90/forward/forward.cuh", "flash/sm80/args.h"),
        ("sm90/matmuls.cuh", "flash/sm90/forward/consumer.cuh"),
        ("sm90_serve/pages.cuh", "flash/sm80_serve/tile.cuh"),
        ("sm90_serve_mla/place.cuh", "flash/sm80_bwd/config.h"),
        ("tile/rows.cuh", "flash/sm90/ring.cuh"),
        ("core/registry.h", "flash/sm80/config.h"),
        ("ptx/math.cuh", "flash/tile/rows.cuh"),
        ("sm80/config.h", "../sm90/config.h"),
    ],
)
def test_a_planted_include_is_found(user: str, used: str, tmp_path: Path) -> None:
    flash = tmp_path / "flash"
    shutil.copytree(CSRC / "include" / "flash", flash)
    path = flash / user
    path.write_text(path.read_text().replace("#pragma once", f'#pragma once\n#include "{used}"', 1))
    assert wrong_includes(flash) == [f"{user} includes {used}"]


def belongs(place: Path, family: str) -> bool:
    """Whether it is a room of the family, or of the same architecture's other pass, in whose name
    the family's stands."""
    parts = (*place.parts, place.stem)
    rooms = (*parts, *(BUILT_ON[part] for part in parts if part in BUILT_ON))
    return any(part == family or part.startswith(f"{family}_") for part in rooms)


def names_outside(csrc: Path) -> list[str]:
    """Lines that name a family, in files that belong to none or to another. A room is a folder of
    the family's name, or a file. The emulator's folder sm90 models an architecture's units, which
    any kernel may use: there the word is no family's."""
    found = []
    for path in sorted(path for path in csrc.rglob("*") if path.is_file()):
        place = path.relative_to(csrc)
        if place.parts[0] == "emulator":
            continue
        others = [f for f in FAMILIES if not belongs(place, f)]
        for family in others:
            pattern = re.compile(f"{family}|{WORDS[family]}", re.IGNORECASE)
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                if pattern.search(line):
                    found.append(f"{place}:{number} names {family}")
    return found


def test_nobody_outside_a_family_s_rooms_names_it() -> None:
    assert set(WORDS) == set(FAMILIES)
    assert names_outside(CSRC) == []
    build = (ROOT / "CMakeLists.txt").read_text().lower()
    assert not any(word in build for pair in WORDS.items() for word in pair)


@pytest.mark.parametrize(
    ("path", "text", "family"),
    [
        ("runtime/launcher.cpp", '#include "sm90/launch.h"', "sm90"),
        ("runtime/sm80.cpp", "// as the Hopper family's", "sm90"),
        ("include/flash/tile/rows.cuh", "// for Ampere", "sm80"),
        ("templates/kernel.cu.jinja", '#include "flash/sm80/args.h"', "sm80"),
    ],
)
def test_a_planted_name_is_found(path: str, text: str, family: str, tmp_path: Path) -> None:
    csrc = tmp_path / "csrc"
    shutil.copytree(CSRC, csrc)
    (csrc / path).write_text(f"{text}\n" + (csrc / path).read_text())
    assert names_outside(csrc) == [f"{path}:1 names {family}"]
