"""All micro-kernels, and the recorded answers of the H200."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .memory_kernels import memory_kernels
from .micro_kernel import Case, MicroKernels
from .scalar_kernels import scalar_kernels
from .warp_kernels import MMA_FORMS, MMA_MORE_SETS, MMA_SETS, ldmatrix_kernels, mma_kernels

ANSWERS = Path(__file__).parent / "answers.npz"
KernelCase = tuple[MicroKernels, Case]


@functools.cache
def suite() -> tuple[MicroKernels, ...]:
    mma = [mma_kernels(kind, sets) for sets in (MMA_SETS, MMA_MORE_SETS) for kind in MMA_FORMS]
    return (*scalar_kernels(), ldmatrix_kernels(), *mma, memory_kernels())


# Micro-kernels that came after the last recording, of forms that no built kernel has. Whoever
# records next takes them off the list, which a test asks for.
UNANSWERED: frozenset[str] = frozenset()


def all_cases() -> list[KernelCase]:
    return [(kernels, case) for kernels in suite() for case in kernels.cases]


def save_answers(
    path: Path,
    outputs: dict[str, Any],
    about: dict[str, str],
    cases: Sequence[KernelCase] | None = None,
) -> None:
    """`outputs`: entry to output buffer. The index says where each case's answer lies and what it
    was the answer to. `cases`: None for those of this suite."""
    index = {
        case.key: [kernels.entry, kernels.offsets[case.key], kernels.fingerprint(case)]
        for kernels, case in (all_cases() if cases is None else cases)
    }
    text = json.dumps({"about": about, "cases": index})
    data = np.frombuffer(text.encode(), np.uint8)
    arrays: dict[str, Any] = {"index": data, **outputs}
    np.savez_compressed(path, **arrays)


class Answers:
    """The answers in a file, or none if there is no file."""

    def __init__(self, path: Path = ANSWERS) -> None:
        self.about: dict[str, str] = {}
        self._cases: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                self._outputs = dict(file)
            index = json.loads(self._outputs.pop("index").tobytes())
            self.about, self._cases = index["about"], index["cases"]

    def get(self, kernels: MicroKernels, case: Case) -> Any:
        """The recorded results, or None where this very question was not asked."""
        entry, start, fingerprint = self._cases.get(case.key, ("", 0, ""))
        if fingerprint != kernels.fingerprint(case):
            return None
        n_bytes = case.count * np.dtype(case.dtype).itemsize
        return self._outputs[entry][start : start + n_bytes].view(case.dtype)
