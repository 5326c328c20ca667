"""The source archive, and the wheel that is built from it: the launcher alone, which takes its
kernels from NVRTC. Installed where nothing else is, outside of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from flash_attention import __version__
from flash_helpers.build import portable_wheel

from .conftest import ROOT, Tree, copy_sources
from .remembering import Toolchain
from .test_install import environment, run
from .wheel_smoke import SMOKE

MOST_BYTES = 3_000_000
STEM = f"flash_attention_from_scratch-{__version__}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, compilers: Toolchain) -> Path:
    """Of a tree that has been built in, with all that this leaves."""
    folder = tmp_path_factory.mktemp("archive")
    tree = copy_sources(folder / "tree", compilers)
    (tree.root / "flash_attention" / "_C.left.so").write_bytes(b"of an earlier build")
    code = f"import setuptools.build_meta as b; print(b.build_sdist({str(folder)!r}))"
    run([sys.executable, "-c", code], tree.root, environment(tree))
    return folder / f"{STEM}.tar.gz"


@pytest.fixture(scope="module")
def wheel(archive: Path, compilers: Toolchain) -> Path:
    """KERNELS is not set."""
    environ = environment(Tree(archive.parent, compilers))
    del environ["KERNELS"]
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-build-isolation", "--no-deps"]
    run([*pip, "--wheel-dir", archive.parent, archive], archive.parent, environ)
    (found,) = archive.parent.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def portable(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the platform tag of those that are published."""
    copied = shutil.copy(wheel, tmp_path_factory.mktemp("portable"))
    assert portable_wheel.main([str(copied)]) == 0
    (found,) = Path(copied).parent.glob("*-manylinux*.whl")
    return found


def test_auditwheel_agrees_with_the_tag(wheel: Path, portable: Path) -> None:
    assert wheel.stem.endswith("-linux_x86_64")
    tag = portable.stem.rpartition("-")[2]
    assert tag == portable_wheel.platform_of(wheel) == portable_wheel.platform_of(portable)
    assert portable.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(portable) as opened:
        metadata = opened.read(f"{STEM}.dist-info/WHEEL").decode()
    assert f"-{tag}\n" in metadata


def packed(folder: Path, extension: Path | None) -> Path:
    """A wheel with an extension, or with nothing that is of a platform."""
    tag = "py3-none-any" if extension is None else "cp311-cp311-linux_x86_64"
    info = "made_here-1.dist-info"
    path = folder / f"made_here-1-{tag}.whl"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("made_here.py", "")
        if extension is not None:
            opened.write(extension, extension.name)
        opened.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        opened.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: made_here\nVersion: 1\n")
        opened.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in opened.namelist()))
    return path


def test_what_is_not_portable_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = ["g++", "-shared", "-fPIC", "-x", "c++"]
    source = tmp_path / "one.cpp"
    source.write_text('extern "C" int one() { return 1; }')
    run([*compiler, source, "-o", tmp_path / "libforeign.so"], tmp_path, dict(os.environ))
    source.write_text(
        'extern "C" { int one(); int Py_IsInitialized();\n'
        "int PyInit_two() { return one() + Py_IsInitialized(); } }"
    )
    extension = tmp_path / "two.cpython-311-x86_64-linux-gnu.so"
    link = ["-x", "none", "libforeign.so", "-Wl,-rpath,$ORIGIN"]
    run([*compiler, source, "-o", extension, *link], tmp_path, dict(os.environ))
    assert portable_wheel.main([str(packed(tmp_path, extension))]) == 1
    assert "linux_x86_64 is all that it can be: it needs libforeign.so" in capsys.readouterr().err
    assert portable_wheel.main([str(packed(tmp_path, None))]) == 1
    assert "py3-none-any.whl: " in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        portable_wheel.main([str(tmp_path / "none.whl")])


def test_the_archive_has_what_a_build_reads_and_no_build(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        found = {Path(name).relative_to(STEM) for name in opened.getnames()}
    for folder in ("csrc", "previous_kernels", "py", "flash_attention"):
        expected = {
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix not in (".pyc", ".so")
        }
        assert not {path for path in expected - found if path.suffix != ".md"}
    assert {Path("CHANGELOG.md"), Path("LICENSE"), Path("README.md")} <= found
    assert not [path for path in found if path.suffix == ".so"]


def test_the_wheel_is_small_and_says_whose_it_is(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(wheel) as opened:
        licence = opened.read(f"{STEM}.dist-info/licenses/LICENSE")
        metadata = HeaderParser().parsestr(opened.read(f"{STEM}.dist-info/METADATA").decode())
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert metadata["Version"] == __version__
    assert "License :: OSI Approved :: MIT License" in metadata.get_all("Classifier", [])
    assert metadata.get_all("Project-URL")


def test_it_works_in_an_empty_environment(portable: Path, tmp_path: Path) -> None:
    """First without torch, then with that and jinja2 in reach, and nothing else of the tree."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], tmp_path, environ)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "install", "--no-index"]
    run([*pip, "--no-deps", portable], tmp_path, environ)
    alone = [str(python), "-c", "import flash_attention; print(flash_attention.__version__)"]
    assert subprocess.check_output(alone, cwd=tmp_path, env=environ).decode().strip() == __version__
    site = python.parents[1] / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [python, "-c", SMOKE], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n"), done.stderr
