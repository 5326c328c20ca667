"""Builds the kit's own CUDA sources (cuda/) with nvcc, once, into the cache directory."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.cache import build_once, cache_dir, is_intact, publish_built
from flash_helpers.build.kernel_ptx import COMMON_FLAGS, run_nvcc
from flash_helpers.codegen.sources import include_dirs
from flash_helpers.compilers.nvcc_wheels import find_or_install_nvcc
from flash_helpers.compilers.toolchain import find_host_compiler

SOURCES = Path(__file__).resolve().parent / "cuda"


def build(
    name: str, files: Sequence[str], capability: tuple[int, int], *, shared: bool = False
) -> Path:
    """The program, or with `shared` the library, that `files` of cuda/ make for a GPU of this
    compute capability. Raises BuildError without compilers, RuntimeError with nvcc's message."""
    nvcc, host = find_or_install_nvcc(), find_host_compiler()
    flags = [*COMMON_FLAGS, f"-arch=sm_{capability[0]}{capability[1]}", "-ccbin", str(host.path)]
    if shared:
        flags += ["-shared", "-Xcompiler", "-fPIC"]
    key = _fingerprint([nvcc.version, host.version, *flags, *files])
    path = cache_dir("profiling") / f"{name}-{key}{'.so' if shared else ''}"
    sources = [str(SOURCES / file) for file in files]

    def compile_to(output: Path) -> None:
        run_nvcc(nvcc, [*flags, *sources, *nvcc.link_flags, "-o", str(output)], name)

    def built() -> Path:
        publish_built(compile_to, path)
        return path

    return build_once(path, lambda: path if is_intact(path) else None, built)


def _fingerprint(words: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    headers = include_dirs()[0].rglob("*.*")
    for path in sorted([*SOURCES.iterdir(), *headers]):
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
