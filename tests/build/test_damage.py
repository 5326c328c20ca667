"""Any file of the build directory may be lost, emptied, cut or overwritten: the next build is
right, and after it nothing is left to do."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.programs import Tool

from .stand_ins import QuickTree, make_toolchain, quick_tree

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, needs_compilers: None) -> QuickTree:
    folder = tmp_path_factory.mktemp("damage")
    tree = quick_tree(folder / "tree", make_toolchain())
    tree.build()
    return tree


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite(path: Path) -> None:
    """As long as it was, and no text."""
    path.write_bytes(b"\xff\x00[[" * (path.stat().st_size // 4) + b"x" * (path.stat().st_size % 4))


def lose(path: Path) -> None:
    """As after a power cut: size and times are right, and the blocks were never written."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGES = (Path.unlink, empty, cut, overwrite, lose)
Damage = Callable[[Path], None]


def kind(name: Path) -> str:
    """Files of one kind are alike: one of each is damaged."""
    alike = next((word for word in ("staged", "pybind11", "CompilerId") if word in str(name)), "")
    target = next((part for part in name.parts if part.endswith(".dir")), "")
    return f"{target} {name.suffix}" if target else alike or str(name)


def files(tree: QuickTree) -> list[Path]:
    paths = sorted(path for path in tree.directory.rglob("*") if path.is_file())
    return list({kind(path.relative_to(tree.directory)): path for path in paths}.values())


def check_healed(tree: QuickTree, what: str, before: bytes, said: Output) -> None:
    """One build makes the same library as before, and the next finds nothing to do."""
    tree.build()
    assert tree.library.read_bytes() == before, what
    configured = (tree.directory / "configured").stat().st_mtime_ns
    said.readouterr()
    tree.build()
    assert "no work to do" in said.readouterr().out, f"{what}: and what was made of it"
    assert (tree.directory / "configured").stat().st_mtime_ns == configured, what


def check_every_file(tree: QuickTree, choose: Callable[[], Damage], said: Output) -> None:
    before = tree.library.read_bytes()
    paths = files(tree)
    assert {"build.ninja", "rules.ninja", "CMakeCache.txt", "configured", "link_flags.txt", "lock",
            ".ninja_deps", ".ninja_log", "sources.cmake", "originals.sed", "manifest.json"} <= {
        path.name for path in paths
    }  # fmt: skip
    assert {".o", ".so", ".log", ".cu", ".cpp", ".h"} <= {path.suffix for path in paths}
    for path in paths:
        damage = choose()
        damage(path)
        what = f"{path.relative_to(tree.directory)}, {damage.__name__}"
        check_healed(tree, what, before, said)


def test_every_file_damaged_somehow(tree: QuickTree, seed: int, capfd: Output) -> None:
    chance = random.Random(seed)
    check_every_file(tree, lambda: chance.choice(DAMAGES), capfd)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_every_file_damaged_in_every_way(tree: QuickTree, damage: Damage, capfd: Output) -> None:
    check_every_file(tree, lambda: damage, capfd)


@pytest.mark.slow
def test_every_folder(tree: QuickTree, capfd: Output) -> None:
    before = tree.library.read_bytes()
    folders = [path for path in tree.directory.rglob("*") if path.is_dir()]
    names = [path.relative_to(tree.directory) for path in folders]
    for name in sorted(name for name in names if "CompilerId" not in str(name)):
        if len(name.parts) <= 2:
            shutil.rmtree(tree.directory / name)
            check_healed(tree, str(name), before, capfd)


@pytest.mark.slow
def test_a_folder_in_place_of_a_file_and_the_reverse(tree: QuickTree) -> None:
    """Healed, or one sentence that says what to delete."""
    for path in sorted(tree.directory.iterdir()):
        aside = path.with_name("aside")
        path.rename(aside)
        if aside.is_dir():
            path.write_text("a file")
        else:
            path.mkdir()
        try:
            tree.build()
        except BuildError as error:
            assert str(tree.directory) in str(error) and "\n" not in str(error)
            assert f"delete {tree.directory}" in str(error) or path.name.startswith(".ninja_")
        if path.is_dir() != aside.is_dir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
        tree.build()


def test_a_folder_in_place_of_the_lock(tmp_path: Path, needs_compilers: None) -> None:
    """Found before anything is compiled, and by an exception of the lock's own."""
    tree = quick_tree(tmp_path / "tree", make_toolchain())
    (tree.directory / "lock").mkdir(parents=True)
    with pytest.raises(BuildError, match=f"lock: .*: delete {tree.directory} and build again"):
        tree.build()


def test_a_moved_tree(tree: QuickTree, tmp_path: Path, capfd: Output) -> None:
    """CMake's files hold the old place."""
    moved = replace(tree, plan=replace(tree.plan, root=tmp_path / "elsewhere"))
    shutil.copytree(tree.root, moved.root)
    names = {path.name for path in tree.directory.rglob("*.cu")}
    moved.build()
    check_healed(moved, "moved", moved.library.read_bytes(), capfd)
    assert {path.name for path in moved.directory.rglob("*.cu")} == names
    assert str(tree.root) not in (moved.directory / "build.ninja").read_text()


def test_what_was_not_built_is_not_published(tree: QuickTree, tmp_path: Path) -> None:
    """As when the clock was set back: to ninja, what it made is newer than the changed source."""
    before = tree.library.read_bytes()
    idle = tmp_path / "ninja"
    idle.write_text(f'#!/bin/sh\n[ "$1" = -C ] || exec "{tree.plan.ninja.path}" "$@"\n')
    idle.chmod(0o755)
    source = tree.root / "csrc" / "runtime" / "launcher.cpp"
    text = source.read_text()
    source.write_text(f"{text}// changed\n")
    with pytest.raises(BuildError, match=r"is not what was built.*delete .* and build again"):
        replace(tree, plan=replace(tree.plan, ninja=Tool(idle, "1.13"))).build()
    assert tree.library.read_bytes() == before
    source.write_text(text)
