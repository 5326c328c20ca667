"""Compiles Triton and Gluon kernels for a GPU that need not be there: a stand-in for Triton's CUDA
driver names an architecture and launches nothing; and what ptxas says of the code."""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flash_helpers.compilers.ptxas import parse_ptxas

from .op import C, Op, P

_LOCK = threading.RLock()


@dataclass(frozen=True)
class Compiled:
    """One kernel. `shared_bytes` is dynamic shared memory; `n_warps` counts every partition;
    `registers` are those of a thread at launch; `spill_bytes` counts stores and loads."""

    name: str
    ptx: str
    cubin: bytes
    shared_bytes: int
    n_warps: int
    registers: int
    stack_bytes: int
    spill_bytes: int
    warnings: tuple[str, ...]
    descriptors: tuple[dict[str, Any], ...]
    scratch_bytes: int


def compile_op(op: Op[C, P], config: C, problem: P, *, architecture: int | None = None) -> Compiled:
    """The kernel for sm_<architecture>, by default the Op's, with its resources. Raises ValueError
    for a configuration that cannot be built."""
    sm = architecture or op.architecture
    op.checked(config, problem)
    arguments = op.arguments(config, problem, op.stand_ins(problem))
    with stand_in(sm), _own_cache():
        kernel = op.kernel_for(config, problem)
        warm = kernel.warmup(*arguments, **op.options(config, problem), grid=(1,))
        return inspect(warm, sm)


class _OfflineDriver:
    """As much of triton's driver interface as compiling needs."""

    def __init__(self, architecture: int) -> None:
        self._architecture = architecture

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._architecture, 32)

    def get_current_device(self) -> int:
        return -self._architecture  # Triton keeps compiled kernels by device: never mix two

    def get_current_stream(self, device: int) -> int:
        return 0


@contextlib.contextmanager
def stand_in(architecture: int) -> Iterator[None]:
    """Inside, Triton compiles for sm_<architecture>, GPU or none. `architecture` is 80, 90, …"""
    from triton.runtime import driver

    with _LOCK:
        before = driver._active
        driver.set_active(_OfflineDriver(architecture))
        try:
            yield
        finally:
            driver._active = before


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """Triton's compile cache in a folder that goes away: nothing stale is inspected, and nothing
    stays behind."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        yield


def inspect(kernel: object, architecture: int) -> Compiled:
    """A kernel that Triton compiled (triton.compiler.CompiledKernel), with ptxas's report."""
    asm, metadata = kernel.asm, kernel.metadata  # type: ignore[attr-defined]
    log = run_ptxas(asm["ptx"], architecture)
    (usage,) = parse_ptxas(log)
    return Compiled(
        name=metadata.name,
        ptx=asm["ptx"],
        cubin=asm["cubin"],
        shared_bytes=metadata.shared,
        n_warps=metadata.num_warps,
        registers=usage.registers,
        stack_bytes=usage.stack_bytes,
        spill_bytes=usage.spill_store_bytes + usage.spill_load_bytes,
        warnings=tuple(s for s in log.splitlines() if "warning" in s.lower() or "C75" in s),
        descriptors=tuple(metadata.tensordesc_meta or ()),
        scratch_bytes=metadata.global_scratch_size,
    )


def run_ptxas(ptx: str, architecture: int) -> str:
    """The -v report of the ptxas that Triton itself takes for this architecture: it brings two, and
    3.9 takes the other one for sm_90. Raises RuntimeError with its message if it fails."""
    from triton.backends.nvidia.compiler import get_ptxas

    suffix = "a" if architecture >= 90 else ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        done = subprocess.run(
            [get_ptxas(architecture).path, "-v", f"--gpu-name=sm_{architecture}{suffix}",
             str(source), "-o", str(Path(folder) / "kernel.cubin")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"ptxas failed with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr
