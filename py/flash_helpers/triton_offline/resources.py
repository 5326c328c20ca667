"""What ptxas says about a compiled kernel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_USED = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SERIALIZED = re.compile(r"C75(1[0-7])")


@dataclass(frozen=True)
class Compiled:
    """One kernel. `shared_bytes` is dynamic shared memory; `n_warps` counts every partition;
    `registers` are those of a thread at launch; `spill_bytes` counts stores and loads."""

    name: str
    ptx: str
    cubin: bytes
    ttgir: str
    shared_bytes: int
    n_warps: int
    registers: int
    stack_bytes: int
    spill_bytes: int
    warnings: tuple[str, ...]
    descriptors: tuple[dict[str, Any], ...]
    scratch_bytes: int

    @property
    def serialized_wgmma(self) -> tuple[str, ...]:
        """ptxas's warnings that matrix products wait for each other (C7510 to C7517)."""
        return tuple(line for line in self.warnings if _SERIALIZED.search(line))


def inspect(kernel: object, architecture: int) -> Compiled:
    """A kernel that Triton compiled (triton.compiler.CompiledKernel), with ptxas's report."""
    asm, metadata = kernel.asm, kernel.metadata  # type: ignore[attr-defined]
    log = run_ptxas(asm["ptx"], architecture)
    used, stack = _USED.search(log), _STACK.search(log)
    if used is None or stack is None:
        raise RuntimeError(f"ptxas -v names no registers or no stack: {log[-2000:]}")
    frame, stores, loads = map(int, stack.groups())
    return Compiled(
        name=metadata.name,
        ptx=asm["ptx"],
        cubin=asm["cubin"],
        ttgir=str(asm["ttgir"]),
        shared_bytes=metadata.shared,
        n_warps=metadata.num_warps,
        registers=int(used.group(1)),
        stack_bytes=frame,
        spill_bytes=stores + loads,
        warnings=tuple(s for s in log.splitlines() if "warning" in s.lower() or "C75" in s),
        descriptors=tuple(metadata.tensordesc_meta or ()),
        scratch_bytes=metadata.global_scratch_size,
    )


def run_ptxas(ptx: str, architecture: int) -> str:
    """The -v report of Triton's own ptxas. Raises RuntimeError with its message if it fails."""
    from triton import knobs

    suffix = "a" if architecture >= 90 else ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        done = subprocess.run(
            [knobs.nvidia.ptxas.path, "-v", f"--gpu-name=sm_{architecture}{suffix}", str(source),
             "-o", str(Path(folder) / "kernel.cubin")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"ptxas failed with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def tool(name: str) -> Path:
    """nvdisasm or cuobjdump as Triton brings it."""
    from triton import knobs

    found = {"nvdisasm": knobs.nvidia.nvdisasm, "cuobjdump": knobs.nvidia.cuobjdump}
    if name not in found:
        raise ValueError(f"{name}: triton brings {' and '.join(sorted(found))}")
    return Path(found[name].path)
