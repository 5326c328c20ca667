"""nvcc from PyPI: where its wheels lie, and how a private copy of them is installed.

The private copy goes into a folder of its own, never into site-packages: there it could replace the
CUDA runtime that the installed torch was built for.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from .errors import BuildError
from .toolchain import Nvcc, find_nvcc, probe

# All of them pinned: nvcc's own requirements are open, and a newer libnvvm writes PTX that this
# ptxas refuses ("Unsupported .version").
PINNED_WHEELS = {
    "nvidia-cuda-nvcc": "13.0.88",
    "nvidia-nvvm": "13.0.88",
    "nvidia-cuda-crt": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
}
# These three are one compiler and must agree; the runtime may be of another patch release.
_ONE_COMPILER = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt")
_INSIDE_WHEEL = Path("nvidia") / "cu13"


def install_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The private copy's folder, in the cache of flash_attention."""
    environ = os.environ if environ is None else environ
    if environ.get("FLASH_ATTENTION_CACHE_DIR"):
        cache = Path(environ["FLASH_ATTENTION_CACHE_DIR"])
    elif environ.get("XDG_CACHE_HOME"):
        cache = Path(environ["XDG_CACHE_HOME"]) / "flash_attention"
    else:
        cache = Path(environ.get("HOME") or Path.home()) / ".cache" / "flash_attention"
    return cache / f"nvcc-{PINNED_WHEELS['nvidia-cuda-nvcc']}"


def wheel_folders(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Toolkit folders made of wheels: site-packages first, then the private copy."""
    for packages in dict.fromkeys(sysconfig.get_path(key) for key in ("purelib", "platlib")):
        folder = Path(packages) / _INSIDE_WHEEL
        if (folder / "bin" / "nvcc").exists():
            _check_versions_agree(Path(packages))
            yield folder, "PyPI wheels in site-packages"
    private = install_folder(environ)
    if (private / _INSIDE_WHEEL / "bin" / "nvcc").exists():
        _check_owner(private)
        yield private / _INSIDE_WHEEL, "PyPI wheels of this project"


def find_or_install_nvcc(environ: Mapping[str, str] | None = None) -> Nvcc:
    """`find_nvcc`, and where there is none, the pinned wheels. An existing but unusable CUDACXX
    stays an error: replacing what was asked for in silence would hide it."""
    environ = os.environ if environ is None else environ
    try:
        return find_nvcc(environ)
    except BuildError:
        if environ.get("CUDACXX"):
            raise
    folder = install_folder(environ)
    wheels = [f"{name}=={version}" for name, version in PINNED_WHEELS.items()]
    print(
        f"no CUDA compiler found: taking {', '.join(wheels)} (101 MB) from PyPI into {folder}",
        file=sys.stderr,
        flush=True,
    )
    _install(wheels, folder)
    return probe(folder / _INSIDE_WHEEL / "bin" / "nvcc", "PyPI wheels of this project", environ)


def _install(wheels: list[str], folder: Path) -> None:
    """Into a temporary neighbour first: `folder` exists only when it is complete."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise BuildError(f"cannot write {folder.parent}: {error.strerror}") from error
    try:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet"]
        command += ["--target", str(staging), *wheels]
        if subprocess.run(command, check=False).returncode != 0:
            raise BuildError(
                "nvcc could not be installed from PyPI (pip's message is above): install CUDA 12 "
                "or newer by hand and set CUDA_HOME, or make PyPI reachable"
            )
        try:
            staging.rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process was faster, and its copy is as good
                raise BuildError(f"cannot create {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_versions_agree(packages: Path) -> None:
    versions = {
        found.metadata["Name"]: found.version
        for found in metadata.distributions(path=[str(packages)])
        if found.metadata["Name"] in _ONE_COMPILER
    }
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        pins = " ".join(f"{name}=={version}" for name, version in PINNED_WHEELS.items())
        raise BuildError(
            f"the CUDA compiler's wheels in {packages} do not belong together ({listed}): "
            f"pip install --no-deps {pins}"
        )


def _check_owner(folder: Path) -> None:
    """Programs are run from it: nobody else may be able to write there."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(f"{folder} belongs to or is writable for somebody else: delete it")
