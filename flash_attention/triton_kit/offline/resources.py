"""What ptxas says about a compiled kernel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flash_helpers.compilers.ptxas import parse_ptxas

_SERIALIZED = re.compile(r"C75(1[0-7])")


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

    @property
    def serialized_wgmma(self) -> tuple[str, ...]:
        """ptxas's warnings that matrix products wait for each other (C7510 to C7517)."""
        return tuple(line for line in self.warnings if _SERIALIZED.search(line))


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
