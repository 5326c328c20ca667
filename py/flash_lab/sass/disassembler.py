"""Runs cuobjdump: from CUDA_HOME, PATH, beside nvcc, or the PyPI packages that carry it."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from flash_helpers.base.cache import build_once, cache_dir, publish_text, read_intact_text

_TOOLS = ("cuobjdump", "nvdisasm")  # cuobjdump runs nvdisasm, which must lie beside it or on PATH
_PACKAGES = "nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
_SECONDS = 300
_REMEMBERED_BYTES = 2**20  # a cubin; the listing of a whole extension has hundreds of megabytes


class SassError(Exception):
    """There is no machine code to be had; the message says why and what to do."""


def find_cuobjdump(environ: Mapping[str, str] = os.environ) -> Path:
    """The first folder with both tools decides, so that their versions agree."""
    looked: list[str] = []
    for folder in _folders(environ):
        looked.append(str(folder))
        if all(os.access(folder / tool, os.X_OK) for tool in _TOOLS):
            return folder / _TOOLS[0]
    raise SassError(
        f"cuobjdump and nvdisasm are not in one of {', '.join(looked)}: install the CUDA toolkit "
        f"and set CUDA_HOME, or pip install {_PACKAGES}"
    )


def _folders(environ: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield Path(environ[variable]) / "bin"
    for tool in ("cuobjdump", "nvcc"):
        found = shutil.which(tool, path=environ.get("PATH", os.defpath))
        if found:
            yield Path(found).resolve().parent
    yield Path("/usr/local/cuda/bin")
    for packages in dict.fromkeys(sysconfig.get_path(key) for key in ("purelib", "platlib")):
        root = Path(packages) / "nvidia"
        yield root / "cu13" / "bin"  # all CUDA 13 packages share this folder
        yield root / "cuda_nvdisasm" / "bin"


_found_cuobjdump = cache(find_cuobjdump)


def cuobjdump(*arguments: str, file: Path) -> str:
    """Its standard output; of a small file from the cache where it was read before. SassError with
    its message if it cannot read `file`."""
    if not file.is_file():
        raise SassError(f"{file} does not exist")
    tool = _found_cuobjdump()
    if file.stat().st_size > _REMEMBERED_BYTES:
        return _run(tool, arguments, file)
    entry = cache_dir("sass") / f"{_key(tool, arguments, file)}.txt"

    def run() -> str:
        text = _run(tool, arguments, file)
        publish_text(text, entry)
        return text

    return build_once(entry, lambda: read_intact_text(entry), run)


def _key(tool: Path, arguments: tuple[str, ...], file: Path) -> str:
    """Of what the output depends on: the file's contents, what is asked, and the two tools."""
    state = hashlib.sha256(file.read_bytes())
    tools = [(tool.parent / name).resolve() for name in _TOOLS]
    known = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in tools]
    state.update(repr((arguments, known)).encode())
    return state.hexdigest()[:32]


def _run(tool: Path, arguments: tuple[str, ...], file: Path) -> str:
    path = f"{tool.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    try:
        done = subprocess.run(
            [str(tool), *arguments, str(file.resolve())], capture_output=True, text=True,
            timeout=_SECONDS, env={**os.environ, "PATH": path}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SassError(f"{tool} cannot be run: {error}") from error
    if done.returncode != 0 or "does not contain device code" in done.stdout + done.stderr:
        message = " ".join((done.stderr + done.stdout).split())[:400]
        raise SassError(f"{tool.name} finds no machine code in {file}: {message}")
    return done.stdout
