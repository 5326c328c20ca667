"""Compiles Triton and Gluon kernels for a GPU that need not be there: a stand-in for Triton's CUDA
driver names an architecture and launches nothing; and what ptxas says of the code."""

import contextlib
import io
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flash_helpers.compilers.ptxas import KernelUsage, parse_ptxas

from .op import C, Op, P

_LOCK = threading.RLock()


@dataclass(frozen=True)
class Compiled:
    """One kernel. `shared_bytes` is dynamic shared memory; `n_warps` counts every partition. What
    ptxas makes of it is computed when it is first asked for: the emulator needs none of that.
    Raises triton's PTXASError there, if ptxas fails."""

    name: str
    ptx: str
    shared_bytes: int
    n_warps: int
    descriptors: tuple[dict[str, Any], ...]
    scratch_bytes: int
    assemble: Callable[[], tuple[bytes, str]]  # the cubin, and what `ptxas -v` says

    @cached_property
    def _assembled(self) -> tuple[bytes, str]:
        return self.assemble()

    @cached_property
    def _usage(self) -> KernelUsage:
        (usage,) = parse_ptxas(self._assembled[1])
        return usage

    @property
    def cubin(self) -> bytes:
        return self._assembled[0]

    @property
    def registers(self) -> int:
        """Of a thread at launch."""
        return self._usage.registers

    @property
    def stack_bytes(self) -> int:
        return self._usage.stack_bytes

    @property
    def spill_bytes(self) -> int:
        """Stored and loaded."""
        return self._usage.spill_store_bytes + self._usage.spill_load_bytes

    @property
    def warnings(self) -> tuple[str, ...]:
        lines = self._assembled[1].splitlines()
        return tuple(line for line in lines if "warning" in line.lower() or "C75" in line)


def compile_op(op: Op[C, P], config: C, problem: P, *, architecture: int | None = None) -> Compiled:
    """The kernel for sm_<architecture>, by default the Op's, with its resources; from the cache
    directory if it is there. Raises ValueError for a configuration that cannot be built,
    UnsafeCacheError and OSError if that directory cannot be used."""
    sm = architecture or op.architecture
    op.checked(config, problem)
    arguments = op.arguments(config, problem, op.stand_ins(problem))
    with stand_in(sm), _own_cache(), _as_far_as_ptx():
        kernel, options = op.kernel_for(config, problem), op.options(config, problem)
        return _described(kernel.warmup(*arguments, **options, grid=(1,)), options)


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
    """Triton's compile cache in a folder that goes away, behind which is ours."""
    from triton import knobs
    from triton.runtime.cache import RemoteCacheManager

    from .kept import Kept

    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        knobs.cache.manager_class, knobs.cache.remote_manager_class = RemoteCacheManager, Kept
        yield


@contextlib.contextmanager
def _as_far_as_ptx() -> Iterator[None]:
    """Inside, Triton leaves out ptxas."""
    from triton import knobs

    def leave_out(*given: Any) -> Any:
        if not given:  # 3.7 and newer ask so by what to tell such kernels from others
            return "flash_attention", "as far as PTX"
        stages = given[1]
        stages["cubin"] = lambda ptx, metadata: b""
        return None

    with knobs.runtime.scope():
        knobs.runtime.add_stages_inspection_hook = leave_out
        yield


def _described(kernel: Any, options: dict[str, Any]) -> Compiled:
    """A kernel that Triton compiled as far as PTX (triton.compiler.CompiledKernel)."""
    metadata, ptx, language = kernel.metadata, kernel.asm["ptx"], kernel.src.language

    def assemble() -> tuple[bytes, str]:
        """As Triton does it: it brings two ptxas, and has options of its own in every release."""
        from triton import knobs
        from triton.compiler.compiler import make_backend

        backend, stages = make_backend(metadata.target), dict[str, Any]()
        backend.add_stages(stages, backend.parse_options(dict(options)), language)
        with _LOCK, knobs.nvidia.scope(), contextlib.redirect_stdout(io.StringIO()) as log:
            knobs.nvidia.dump_ptxas_log = True
            return stages["cubin"](ptx, {}), log.getvalue()

    return Compiled(
        name=metadata.name,
        ptx=ptx,
        shared_bytes=metadata.shared,
        n_warps=metadata.num_warps,
        descriptors=tuple(metadata.tensordesc_meta or ()),
        scratch_bytes=metadata.global_scratch_size,
        assemble=assemble,
    )
