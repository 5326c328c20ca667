"""The source archive, and the wheel that is built from it: the launcher alone, which takes its
kernels from NVRTC. Installed where nothing else is, outside of the tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from flash_attention import __version__

from .conftest import ROOT, Tree, copy_sources
from .remembering import Toolchain
from .test_install import environment, run

MOST_BYTES = 3_000_000
STEM = f"flash_attention_from_scratch-{__version__}"

# Run by the environment's own Python.
SMOKE = """
import sys
from pathlib import Path
import torch
import flash_attention
place = Path(flash_attention.__file__)
assert Path(sys.prefix) in place.parents, place
info = flash_attention.library_info()
assert (info.kernel_set, info.n_kernels) == ("none", 0)
assert flash_attention.available_kernels() == []
maps = Path("/proc/self/maps").read_text()
assert str(place.parent / "_C.") in maps and "libcuda.so" not in maps
q, k, v = (torch.randn(1, 40, 2, 64).half() for _ in "qkv")
o = flash_attention.flash_attn_func(q, k, v, causal=True)
q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
assert (o.transpose(1, 2).float() - expected).abs().max() < 2e-3
print(flash_attention.__version__)
"""


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


def test_it_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """With torch and jinja2 in reach, and nothing else of the tree."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], tmp_path, environ)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "install", "--no-index"]
    run([*pip, "--no-deps", wheel], tmp_path, environ)
    site = python.parents[1] / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [python, "-c", SMOKE], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n"), done.stderr
