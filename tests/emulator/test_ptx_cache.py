"""What nvcc makes is kept in the cache with a checksum: compiled once, and again when damaged."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_helpers.base.cache import publish_text, read_intact_text
from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernel_configs import get_kernel_configs
from tests.build.test_toolchain import make_nvcc

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.build.kernel_ptx import kernel_cubin
from flash_helpers.build.kernel_ptx import kernel_ptx
config = get_kernel_configs("prog")[0]
text = kernel_ptx(config) if sys.argv[1] == "ptx" else kernel_cubin(config, "sm_80").read_bytes()
sys.stdout.write(text if isinstance(text, str) else text[:-32].decode())
"""
TEXT = "// made by nvcc\n.version 8.0\n" + "ret;\n" * 1000


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """With an nvcc that writes TEXT, and a line into `runs`."""
    (tmp_path / "text").write_text(TEXT)
    nvcc = make_nvcc(tmp_path / "cuda")
    compiles = (
        'case "$*" in *" -o "*) for out in "$@"; do :; done\n'
        f'echo "$@" >>"{tmp_path}/runs"; sleep ${{NVCC_TAKES:-0}}\n'
        f'cp "{tmp_path}/text" "$out"; exit 0 ;; esac\n'
    )
    nvcc.write_text(nvcc.read_text().replace("case", f"{compiles}case", 1))
    own = {"CUDACXX": str(nvcc), "FLASH_ATTENTION_CACHE_DIR": str(tmp_path / "cache")}
    return {**os.environ, **own, "PYTHONPATH": f"{ROOT / 'py'}:{ROOT}"}


def made(environ: dict[str, str], what: str) -> str:
    """`what` of a kernel, as a new process gets it."""
    command = [sys.executable, "-c", CODE, what]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


def entries(tmp_path: Path) -> list[Path]:
    return [p for p in (tmp_path / "cache" / "ptx").iterdir() if p.suffix != ".lock"]


def n_runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:1000],
    "empty": lambda data: b"",
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\n",
    "another byte": lambda data: data.replace(b"8.0", b"8.1"),
    "zeros": lambda data: bytes(len(data)),
    "no text": lambda data: b"\xff" * len(data),
    "as before there were checksums": lambda data: TEXT.encode(),
}


@pytest.mark.parametrize("what", ["ptx", "cubin"])
def test_compiled_once_and_again_when_damaged(
    tmp_path: Path, environ: dict[str, str], what: str
) -> None:
    for _ in range(2):
        assert made(environ, what) == TEXT
        assert n_runs(tmp_path) == 1
    (path,) = entries(tmp_path)
    good = path.read_bytes()
    assert good.startswith(TEXT.encode())
    for count, (how, damage) in enumerate(DAMAGES.items(), start=2):
        path.write_bytes(damage(good))
        assert made(environ, what) == TEXT, how
        assert n_runs(tmp_path) == count, how
        assert path.read_bytes() == good


@pytest.mark.parametrize("what", ["ptx", "cubin"])
def test_of_several_processes_at_once_one_compiles(
    tmp_path: Path, environ: dict[str, str], what: str
) -> None:
    command = [sys.executable, "-c", CODE, what]
    slowly = environ | {"NVCC_TAKES": "1"}
    with contextlib.ExitStack() as stack:
        every = [
            stack.enter_context(subprocess.Popen(command, env=slowly, stdout=subprocess.PIPE))
            for _ in range(3)
        ]
        assert [process.communicate()[0].decode() for process in every] == [TEXT] * 3
    assert n_runs(tmp_path) == 1


@pytest.mark.parametrize(
    "text", ["", "no line end", "two\nlines\n", "µ\n", "// sha256 of the lines above: 0\n"]
)
def test_a_published_text_is_the_same_and_stays_readable(tmp_path: Path, text: str) -> None:
    path = tmp_path / "text"
    assert read_intact_text(path) is None
    publish_text(text, path)
    assert read_intact_text(path) == text
    written = path.read_text()
    assert written.startswith(text) and written.removeprefix(text).startswith("// sha256")
    assert path.stat().st_mode & 0o777 == 0o600
    for damaged in (written[1:], written[:-1], written + text + " ", written.upper()):
        path.write_text(damaged)
        assert read_intact_text(path) is None


def test_a_cut_file_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real compiler, which puts the path of its temporary source into the text."""
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    config = get_kernel_configs("prog")[0]
    first = kernel_ptx(config)
    (path,) = entries(tmp_path)
    os.truncate(path, 1000)
    again = kernel_ptx(config)
    assert ".entry" in first and "sha256" not in first
    assert again.count("\n") == first.count("\n")
    assert kernel_ptx(config) == again == read_intact_text(path)
