"""A path that some tool of the build would misread is refused in one line before anything is
compiled; with any other a build works (test_dependencies.py, and the tree of conftest.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from flash_helpers.build import kernel_ptx
from flash_helpers.build.plan import make_plan
from flash_helpers.compilers import toolchain
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvcc_wheels import find_or_install_nvcc
from flash_helpers.compilers.toolchain import find_host_compiler, find_nvcc
from flash_helpers.compilers.usable_paths import BUILD_REFUSED, TOOL_REFUSED, check_path
from flash_helpers.kernel_configs import get_kernel_configs

from .conftest import ROOT
from .test_toolchain import make_nvcc

NOT_UTF_8 = os.fsdecode(b"\xff")
CONTROL = ("\n", "\t", "\x01", "\x7f")
Environment = dict[str, str]


@pytest.mark.parametrize("character", [*BUILD_REFUSED, *CONTROL, NOT_UTF_8])
def test_a_checkout_below_such_a_path(tmp_path: Path, character: str) -> None:
    root = tmp_path / f"a{character}b" / "tree"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "py" / "flash_helpers", root / "py" / "flash_helpers", ignore=ignore)
    shutil.copy2(ROOT / "CMakeLists.txt", root)
    (root / "csrc").mkdir()
    environ = {**os.environ, "PYTHONPATH": str(root / "py"), "KERNELS": "prog"}
    command = [sys.executable, "-m", "flash_helpers.build"]
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: the source tree is ") and str(tmp_path) in done.stderr
    assert ("not UTF-8" if character == NOT_UTF_8 else repr(character)) in done.stderr
    assert not (root / "build").exists()


@pytest.mark.parametrize("character", [*TOOL_REFUSED, *CONTROL, NOT_UTF_8])
def test_compilers_below_such_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    monkeypatch.setattr(toolchain, "USUAL_FOLDER", tmp_path / "no cuda")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "packages"))
    folder = tmp_path / f"a{character}b"
    nvcc = folder / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.symlink_to(make_nvcc(tmp_path / "good"))
    (folder / "g++").symlink_to("/usr/bin/g++")
    search = {"PATH": "/usr/bin/nowhere", "FLASH_ATTENTION_CACHE_DIR": str(tmp_path / "cache")}
    with pytest.raises(BuildError, match="is misread") as caught:
        find_nvcc({**search, "CUDACXX": str(nvcc)})
    assert "\n" not in str(caught.value)
    with pytest.raises(BuildError, match="is misread"):
        find_nvcc({**search, "CUDA_HOME": str(folder / "cuda")})
    with pytest.raises(BuildError, match="is misread"):
        find_host_compiler({"PATH": "/usr/bin:/bin", "CXX": str(folder / "g++")})
    # And nothing is fetched from PyPI into such a place.
    with pytest.raises(BuildError, match="where a CUDA compiler would be installed"):
        find_or_install_nvcc({**search, "FLASH_ATTENTION_CACHE_DIR": str(folder / "cache")})


def test_the_next_compiler_is_taken(tmp_path: Path) -> None:
    bad, good = make_nvcc(tmp_path / "a;b"), make_nvcc(tmp_path / "good")
    environ = {"CUDA_HOME": str(bad.parents[1]), "CUDA_PATH": str(good.parents[1])}
    assert find_nvcc(environ).path == good


def test_temporary_files_below_such_a_path(needs_compilers: None) -> None:
    for character in '"$`,\n':
        with pytest.raises(BuildError, match="TMPDIR is '/tmp/a"):
            make_plan({**os.environ, "TMPDIR": f"/tmp/a{character}b"})


def test_the_message_is_one_line_and_says_what_and_where() -> None:
    with pytest.raises(BuildError) as caught:
        check_path("the source tree", Path("/a/b;c\nd"))
    assert str(caught.value) == (
        "the source tree is '/a/b;c\\nd': ';' in a path is misread by CMake, ninja, nvcc or the "
        'shell. Use a place without " $ \\ ` ; [ ] |, control characters and bytes that are not '
        "UTF-8"
    )
    check_path("the source tree", Path("/o'brien, (a) & b/#*<>^?: é日本 x"))


def test_nvcc_runs_in_the_environment_of_the_moment(tmp_path: Path, needs_compilers: None) -> None:
    """Found once, it is kept for the life of the process, and TMPDIR may be another by then."""
    then = os.environ | {"TMPDIR": str(tmp_path / "gone")}
    nvcc = find_or_install_nvcc()
    source = tmp_path / "empty.cu"
    source.write_text("")
    kernel_ptx.run_nvcc(
        replace(nvcc, env=then), ["-ptx", str(source), "-o", str(tmp_path / "empty.ptx")], "empty"
    )


def test_nvcc_outside_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_compilers: None
) -> None:
    """PTX for the emulator. nvcc would run what stands between $( and )."""
    config = get_kernel_configs("prog")[0]
    planted = tmp_path / "planted"
    for name in (f"a$(touch {planted})", "a`b", 'a"b', "a\nb"):
        cache = tmp_path / name.replace("/", "_")
        monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(cache))
        with pytest.raises(BuildError, match="is misread"):
            kernel_ptx.kernel_ptx(config)
        monkeypatch.setenv("TMPDIR", str(cache))
        monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
        with pytest.raises(BuildError, match=r"TMPDIR is .* is misread"):
            kernel_ptx.kernel_ptx(config)
        monkeypatch.delenv("TMPDIR")
    assert not planted.exists()
    # Commas and quotes, which nvcc takes out of lists: in the cache and in the path of the sources.
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "o'brien, x; [y]"))
    sources = tmp_path / "o'neil, a & b"
    for folder in ("csrc/include", "previous_kernels"):
        shutil.copytree(ROOT / folder, sources / folder)
    folders = (sources / "csrc" / "include", sources)
    monkeypatch.setattr(kernel_ptx, "include_dirs", lambda: folders)
    assert config.kernel_name() in kernel_ptx.kernel_ptx(config)
