"""The private copy of nvcc in the cache: run only if nobody else can have changed it, and installed
anew when it is damaged."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flash_helpers.compilers import toolchain
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvcc_wheels import PINNED_WHEELS, find_or_install_nvcc, install_folder
from flash_helpers.compilers.toolchain import Nvcc, find_nvcc
from tests.build.test_toolchain import make_nvcc

Environment = dict[str, str]
SEARCHES: tuple[Callable[[Environment], Nvcc], ...] = (find_nvcc, find_or_install_nvcc)


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """No CUDA compiler anywhere, and a pip that copies the folder `wheels`, saying so in `said`, as
    nvcc says there that it ran."""
    monkeypatch.setattr(toolchain, "USUAL_FOLDER", tmp_path / "no cuda")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "packages"))
    nvcc = make_nvcc(tmp_path / "wheels" / "nvidia" / "cu13")
    lines = nvcc.read_text().splitlines()
    lines[1:2] = [f'echo nvcc >>"{tmp_path}/said"', 'here="$(dirname "$0")"']
    nvcc.write_text("\n".join(lines) + "\n")
    ptxas = nvcc.with_name("ptxas")
    ptxas.write_text("the assembler")
    for name, version in PINNED_WHEELS.items():
        info = tmp_path / "wheels" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
    info = tmp_path / "wheels" / "nvidia_cuda_nvcc-13.0.88.dist-info"
    sizes = [f"nvidia/cu13/bin/{p.name},sha256=x,{p.stat().st_size}" for p in (nvcc, ptxas)]
    (info / "RECORD").write_text("\n".join([*sizes, "../../bin/x,,1", "a/RECORD,,"]) + "\n")
    pip = tmp_path / "python"
    pip.write_text(
        f'#!/bin/sh\necho pip >>"{tmp_path}/said"\n'
        'while [ "$1" != --target ]; do shift; done\n'
        f'cp -r "{tmp_path}/wheels/." "$2"\n'
    )
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    (tmp_path / "above").mkdir()
    return {"PATH": "/usr/bin:/bin", "FLASH_ATTENTION_CACHE_DIR": str(tmp_path / "above" / "cache")}


def said(tmp_path: Path) -> set[str]:
    """Who ran since the last call."""
    log = tmp_path / "said"
    found = set(log.read_text().split()) if log.exists() else set()
    log.unlink(missing_ok=True)
    return found


def test_a_copy_of_fewer_wheels_is_replaced(tmp_path: Path, environ: Environment) -> None:
    """An earlier release had none of cuda_fp16.h's own headers."""
    find_or_install_nvcc(environ)
    (added,) = install_folder(environ).glob("nvidia_cuda_cccl-*.dist-info")
    added.rmdir()
    said(tmp_path)
    find_or_install_nvcc(environ)
    assert said(tmp_path) == {"pip", "nvcc"}
    assert added.is_dir()


@pytest.mark.parametrize("place", ["", "nvidia", "nvidia/cu13/bin", "nvidia/cu13/bin/nvcc",
                                   "nvidia/cu13/bin/ptxas", "..", "../.."])  # fmt: skip
@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_copy_that_others_can_change_is_never_run(
    tmp_path: Path, environ: Environment, place: str, mode: int
) -> None:
    assert find_or_install_nvcc(environ).source == "PyPI wheels of this project"
    assert said(tmp_path) == {"pip", "nvcc"}
    opened = Path(os.path.normpath(install_folder(environ) / place))
    before = opened.stat().st_mode
    opened.chmod(mode)
    for search in SEARCHES:
        with pytest.raises(BuildError, match=f"is not run: .*{opened}"):
            search(environ)
    assert said(tmp_path) == set(), "neither the compiler ran nor was another installed over it"
    opened.chmod(before)
    assert find_nvcc(environ).path.is_relative_to(install_folder(environ))


@pytest.mark.parametrize("place", ["", "nvidia", "nvidia/cu13/bin/nvcc"])
def test_a_copy_behind_a_link_is_never_run(
    tmp_path: Path, environ: Environment, place: str
) -> None:
    find_or_install_nvcc(environ)
    said(tmp_path)
    linked = Path(os.path.normpath(install_folder(environ) / place))
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    for search in SEARCHES:
        with pytest.raises(BuildError, match=f"{linked} is a link"):
            search(environ)
    assert said(tmp_path) == set()


def test_a_stranger_s_copy_is_never_run(tmp_path: Path, environ: Environment) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    find_or_install_nvcc(environ)
    said(tmp_path)
    os.chown(install_folder(environ) / "nvidia/cu13/bin/ptxas", 12345, -1)
    for search in SEARCHES:
        with pytest.raises(BuildError, match=r"ptxas .*belongs to"):
            search(environ)
    assert said(tmp_path) == set()


def test_nothing_is_installed_where_others_can_write(tmp_path: Path, environ: Environment) -> None:
    (tmp_path / "above").chmod(0o777)
    with pytest.raises(BuildError, match=r"no compiler is installed there: .*on the way"):
        find_or_install_nvcc(environ)
    assert said(tmp_path) == set() and not list((tmp_path / "above").iterdir())


def test_what_is_installed_is_private_whatever_the_umask(
    tmp_path: Path, environ: Environment
) -> None:
    os.umask(0)
    for path in (tmp_path / "wheels").rglob("*"):
        path.chmod(0o777)
    find_or_install_nvcc(environ)
    made = [install_folder(environ).parent, *install_folder(environ).rglob("*")]
    assert len(made) > 6 and not [path for path in made if path.stat().st_mode & 0o077]
    said(tmp_path)
    assert find_or_install_nvcc(environ) == find_nvcc(environ)
    assert said(tmp_path) == {"nvcc"}, "it is installed once"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nvcc cut": lambda folder: os.truncate(folder / "nvidia/cu13/bin/nvcc", 10),
    "nvcc gone": lambda folder: (folder / "nvidia/cu13/bin/nvcc").unlink(),
    "ptxas empty": lambda folder: os.truncate(folder / "nvidia/cu13/bin/ptxas", 0),
    "ptxas gone": lambda folder: (folder / "nvidia/cu13/bin/ptxas").unlink(),
    "record cut": lambda folder: os.truncate(next(folder.glob("*.dist-info/RECORD")), 25),
    "all gone": lambda folder: shutil.rmtree(folder / "nvidia"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_installed_anew(
    tmp_path: Path, environ: Environment, damage: str
) -> None:
    find_or_install_nvcc(environ)
    DAMAGES[damage](install_folder(environ))
    with pytest.raises(BuildError, match=r"toolchain --install"):
        find_nvcc(environ)
    said(tmp_path)
    assert find_or_install_nvcc(environ).version == "13.0.88"
    assert said(tmp_path) == {"pip", "nvcc"}
    ptxas = install_folder(environ) / "nvidia/cu13/bin/ptxas"
    assert ptxas.read_text() == "the assembler"
    names = {path.name for path in install_folder(environ).parent.iterdir()}
    assert names == {"nvcc-13.0.88", "nvcc-13.0.88.lock"}
