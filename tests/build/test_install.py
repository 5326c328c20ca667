"""Every way to install, and what must lie where afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from .conftest import ROOT, Tree, copy_sources
from .remembering import Toolchain

BUILD_REQUIREMENTS = ("cmake", "jinja2", "ninja", "prettytable", "pybind11", "wheel")
PACKAGES = ("flash_attention", "py/flash_attention_kernels", "py/flash_helpers", "py/flash_lab")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
PROJECT = "flash-attention-from-scratch"
# The oldest and the newest that are supported, and those between where `install` changed.
SETUPTOOLS = ("65.5.0", "68.1.2", "75.8.0", "79.0.1", "80.9.0", "84.2.1")

# Run outside the source tree. torch stands for itself: what is tested needs none of it.
CHECK = """
import importlib.util, sys
from pathlib import Path
package = Path(importlib.util.find_spec("flash_attention").origin).parent
(extension,) = package.glob("_C.*.so")
spec = importlib.util.spec_from_file_location("flash_attention._C", extension)
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
assert module.kernel_set() == "prog" and len(module.kernel_names()) == 7, module.kernel_names()
import flash_helpers.codegen, flash_helpers.base.paths
from flash_helpers.kernels.sets import get_kernel_configs
flash_helpers.codegen.render_translation_unit(get_kernel_configs("prog")[:1])
from flash_helpers.codegen import source_fingerprint
unit = flash_helpers.codegen.render_translation_unit(get_kernel_configs("previous"))
assert len(source_fingerprint(unit)) == 64  # every header of every step was found
assert importlib.util.find_spec("flash_attention_kernels")
print(package)
print(flash_helpers.base.paths.csrc_dir())
"""


def run(command: Sequence[object], cwd: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment(tree: Tree) -> dict[str, str]:
    environ = tree.environ()
    del environ["PYTHONPATH"]
    return environ


def check_packed_sources(folder: Path) -> None:
    """The installed copy holds exactly the tree's headers, templates and emulator."""
    for part in ("include", "templates", "emulator"):
        source = ROOT / "csrc" / part
        expected = {p.relative_to(source) for p in source.rglob("*") if p.is_file()}
        found = {p.relative_to(folder / part) for p in (folder / part).rglob("*") if p.is_file()}
        assert found == expected
    steps = folder.parent / "previous_kernels"
    assert {p.name for p in steps.iterdir()} >= {"steps.toml", "common", "15_tiles_along_d"}
    bodies = (ROOT / "previous_kernels").rglob("*.cuh")
    assert all((steps / p.relative_to(ROOT / "previous_kernels")).is_file() for p in bodies)


def check_packages(site: Path) -> None:
    """Every module of the tree's packages is installed, and nothing else is."""
    for source in map(ROOT.joinpath, PACKAGES):
        installed = site / source.name
        expected = {p.relative_to(source) for p in source.rglob("*.py")}
        assert {p.relative_to(installed) for p in installed.rglob("*.py")} == expected


def check_commands(site: Path, folder: Path, environ: dict[str, str]) -> None:
    """Every command of pyproject.toml is there, and one of them lists this build's kernels."""
    assert {path.name for path in (site / "bin").iterdir()} == set(SCRIPTS)
    listed = [site / "bin/flash-generate-kernel-instantiations", "--kernels", "prog", "--list"]
    assert len(run(listed, folder, environ).splitlines()) == 7


def test_pip_install(tree: Tree, tmp_path: Path) -> None:
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    environ = environment(tree)
    run([*command, "--quiet", "--target", target, "."], tree.root, environ)
    environ["PYTHONPATH"] = str(target)
    package, csrc = run([sys.executable, "-c", CHECK], tmp_path, environ).splitlines()
    assert (Path(package), Path(csrc)) == (
        target / "flash_attention",
        target / "flash_helpers/csrc",
    )
    check_packed_sources(Path(csrc))
    assert (target / "flash_helpers" / "build" / "record_compile.sh").is_file()
    assert (target / "flash_helpers" / "build" / "allowed_spills.toml").is_file()
    assert not list((tree.root / "build").glob("setuptools-*")), "private folders are removed"
    check_packages(target)
    check_commands(target, tmp_path, environ)
    # The tree itself works too: the extension was put beside its Python code.
    assert tree.run_with_extension("print(len(_C.kernel_names()))") == "7\n"


@pytest.fixture
def virtual_environment(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "venv"
    run([sys.executable, "-m", "venv", folder], tmp_path, dict(os.environ))
    yield folder / "bin" / "python"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def matrix_tree(tmp_path_factory: pytest.TempPathFactory, compilers: Toolchain) -> Tree:
    return copy_sources(tmp_path_factory.mktemp("matrix") / "tree", compilers)


def site_packages(python: Path) -> Path:
    version = sysconfig.get_python_version()
    return python.parents[1] / "lib" / f"python{version}" / "site-packages"


@pytest.mark.slow
@pytest.mark.parametrize("setuptools", SETUPTOOLS)
def test_setup_py_install(matrix_tree: Tree, virtual_environment: Path, setuptools: str) -> None:
    """Flat in site-packages, visible to pip and removed by it: with every supported setuptools."""
    python, environ = virtual_environment, environment(matrix_tree)
    pip = [python, "-m", "pip", "--quiet"]
    requirements = [f"setuptools=={setuptools}", *BUILD_REQUIREMENTS]
    run([*pip, "install", *requirements], matrix_tree.root, environ)
    run([python, "setup.py", "install"], matrix_tree.root, environ)
    site = site_packages(python)
    package, csrc = run([python, "-c", CHECK], site.parent, environ).splitlines()
    assert (Path(package), Path(csrc)) == (
        site / "flash_attention",
        site / "flash_helpers" / "csrc",
    )
    check_packed_sources(Path(csrc))
    assert not list(site.glob("*.egg")) and not (site / "easy-install.pth").exists()
    run([*pip, "uninstall", "--yes", PROJECT], matrix_tree.root, environ)
    assert not (site / "flash_attention").exists()


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("editable", [False, True])
def test_pip_modes(
    matrix_tree: Tree, virtual_environment: Path, editable: bool, isolated: bool
) -> None:
    python, environ = virtual_environment, environment(matrix_tree)
    pip = [python, "-m", "pip", "--quiet"]
    if not isolated:
        run([*pip, "install", "setuptools>=80", *BUILD_REQUIREMENTS], matrix_tree.root, environ)
    mode = [*([] if isolated else ["--no-build-isolation"]), *(["--editable"] if editable else [])]
    run([*pip, "install", *mode, "."], matrix_tree.root, environ)
    root = matrix_tree.root if editable else site_packages(python)
    package, csrc = run([python, "-c", CHECK], python.parent, environ).splitlines()
    assert Path(package) == root / "flash_attention"
    assert Path(csrc) == (root / "csrc" if editable else root / "flash_helpers" / "csrc")
    # And from the source tree, whose flash_attention/ comes first on the path there.
    run([python, "-c", CHECK], matrix_tree.root, environ)


@pytest.mark.slow
def test_concurrent_installs(matrix_tree: Tree, tmp_path: Path) -> None:
    environ = environment(matrix_tree)
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    targets = [tmp_path / "one", tmp_path / "two"]
    processes = [
        subprocess.Popen(
            [*command, "--quiet", "--target", str(target), "."], cwd=matrix_tree.root, env=environ
        )
        for target in targets
    ]
    assert [process.wait() for process in processes] == [0, 0]
    for target in targets:
        run([sys.executable, "-c", CHECK], tmp_path, {**environ, "PYTHONPATH": str(target)})
