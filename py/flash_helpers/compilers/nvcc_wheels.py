"""nvcc from PyPI: where its wheels lie, and how a private copy of them is installed.

The private copy goes into a folder of its own, never into site-packages: there it could replace the
CUDA runtime that the installed torch was built for. It lies in the cache, and like the cache it is
used only if nobody else can have changed it.
"""

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from ..base.cache import UnsafeCacheError, configured_directory, exclusive
from ..base.trusted_folders import check_above, check_private, find_untrusted, make_private
from .errors import BuildError
from .toolchain import Nvcc, find_nvcc, probe
from .usable_paths import TOOL_REFUSED, check_path

# All of them pinned: nvcc's own requirements are open, and a newer libnvvm writes PTX that this
# ptxas refuses ("Unsupported .version").
PINNED_WHEELS = {
    "nvidia-cuda-nvcc": "13.0.88",
    "nvidia-nvvm": "13.0.88",
    "nvidia-cuda-crt": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-cccl": "13.0.85",  # the half precision headers include <nv/target>
}
# These three are one compiler and must agree; the runtime may be of another patch release.
_ONE_COMPILER = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt")
_INSIDE_WHEEL = Path("nvidia") / "cu13"
_PRIVATE_UMASK = 0o077


class UnsafeCompilerError(BuildError):
    """The private copy could have been changed by somebody else: it is not run."""


def install_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The private copy's folder, in the cache of flash_attention."""
    return configured_directory(environ) / f"nvcc-{PINNED_WHEELS['nvidia-cuda-nvcc']}"


def wheel_folders(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Toolkit folders made of wheels: site-packages first, then the private copy, if it is as pip
    left it. Raises UnsafeCompilerError where somebody else could have changed that."""
    for packages in dict.fromkeys(sysconfig.get_path(key) for key in ("purelib", "platlib")):
        folder = Path(packages) / _INSIDE_WHEEL
        if (folder / "bin" / "nvcc").exists():
            _check_versions_agree(Path(packages))
            yield folder, "PyPI wheels in site-packages"
    private = install_folder(environ)
    if os.path.lexists(private):
        _check_trusted(private)
        if _is_complete(private):
            yield private / _INSIDE_WHEEL, "PyPI wheels of this project"


def find_or_install_nvcc(environ: Mapping[str, str] = os.environ) -> Nvcc:
    """`find_nvcc`, and where there is none, the pinned wheels. An existing but unusable CUDACXX
    stays an error: replacing what was asked for in silence would hide it. A private copy that is
    damaged is replaced; one that somebody else could have changed is an UnsafeCompilerError."""
    try:
        return find_nvcc(environ)
    except UnsafeCompilerError:
        raise
    except BuildError:
        if environ.get("CUDACXX"):
            raise
    folder = install_folder(environ)
    check_path("the cache, where a CUDA compiler would be installed,", folder, TOOL_REFUSED)
    wheels = [f"{name}=={version}" for name, version in PINNED_WHEELS.items()]
    print(
        f"no CUDA compiler found: taking {', '.join(wheels)} (105 MB) from PyPI into {folder}",
        file=sys.stderr,
        flush=True,
    )
    _install(wheels, folder)
    _check_trusted(folder)
    return probe(folder / _INSIDE_WHEEL / "bin" / "nvcc", "PyPI wheels of this project", environ)


def _install(wheels: list[str], folder: Path) -> None:
    """Into a temporary neighbour first: `folder` exists only when it is complete."""
    try:
        make_private(folder.parent)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except UnsafeCacheError as error:
        raise UnsafeCompilerError(f"no compiler is installed there: {error}") from error
    except OSError as error:
        raise BuildError(f"cannot write {folder.parent}: {error.strerror}") from error
    try:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet"]
        command += ["--target", str(staging), *wheels]
        if subprocess.run(command, check=False, umask=_PRIVATE_UMASK).returncode != 0:
            raise BuildError(
                "nvcc could not be installed from PyPI (pip's message is above): install CUDA 12 "
                "or newer by hand and set CUDA_HOME, or make PyPI reachable"
            )
        _put_in_place(staging, folder)
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


def _put_in_place(staging: Path, folder: Path) -> None:
    """What lies there already is complete (another process was faster) or damaged."""
    aside = staging.with_name(f"{staging.name}-damaged")
    try:
        with exclusive(folder):
            if _is_complete(folder):
                return
            if folder.is_dir():
                folder.rename(aside)
            staging.rename(folder)
    except OSError as error:
        raise BuildError(f"cannot create {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    """Whether nvcc is there and every file has the size that its wheel's RECORD names: what is cut
    or lost is found. Checksums of 300 MB would slow down every search for the compiler."""
    if not (folder / _INSIDE_WHEEL / "bin" / "nvcc").is_file():
        return False
    infos = (f"{n.replace('-', '_')}-{version}.dist-info" for n, version in PINNED_WHEELS.items())
    if not all((folder / info).is_dir() for info in infos):  # an earlier release's
        return False
    try:
        return all(
            (folder / name).is_file() and (folder / name).stat().st_size == int(size)
            for record in folder.glob("*.dist-info/RECORD")
            for name, _, size in csv.reader(record.read_text().splitlines())
            if size and not name.startswith("..")  # scripts, which lie elsewhere with --target
        )
    except ValueError:  # the RECORD is what is damaged
        return False


def _check_trusted(folder: Path) -> None:
    """Programs are run from it, so nobody else may be able to write there, in the cache above it,
    or in the folders above that. Root's files are trusted: he can change every program."""
    try:
        check_private(folder.parent)
        check_above(folder.parent)
        found = find_untrusted(folder)
    except (UnsafeCacheError, OSError) as error:
        raise UnsafeCompilerError(f"the compiler in {folder} is not run: {error}") from error
    if found is not None:
        raise UnsafeCompilerError(
            f"the compiler in {folder} is not run: {found} is a link, belongs to or is writable "
            "for somebody else: delete the folder, and it is installed again"
        )
