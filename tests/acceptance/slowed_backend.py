"""The CUDA backend in which one kernel has more work than the shape of its rows says.

For the gate's own test (gate.py). The kernel, its launch and its inputs are the real ones; it gets
some blocks of keys and values more, so each of its thread blocks takes that many more turns of the
main loop. Nothing else about it changes, as if the loop had become slower.
"""

from __future__ import annotations

from dataclasses import replace

from flash_helpers.check.judge import Judge
from flash_lab.bench.cuda_backend import CHECKED_ENTRIES, CudaBackend, Inputs
from flash_lab.bench.measure import Candidate, Json


class SlowedBackend(CudaBackend):
    """`shape` has, beside the usual, `kv_len` for everybody and `slowed_kernel` with its
    `slowed_kv_len`; both lengths are at most `seq_len`."""

    def __init__(self) -> None:
        super().__init__()
        self.by_length: dict[int, Inputs] = {}
        self._problem: Json = {}

    def prepare(self, shape: Json) -> None:
        problem = {**shape, "slowed_kernel": ""}  # which one it is changes no input
        if self._problem != problem:
            super().prepare(problem)
            whole = self._inputs
            assert whole is not None
            lengths = {int(shape["kv_len"]), int(shape["slowed_kv_len"])}
            self.by_length = {length: _shortened(whole, length) for length in lengths}
            self._problem = problem
        self.shape = shape

    def candidate(self, provider: str, kernel: str) -> Candidate:
        is_slowed = kernel == self.shape["slowed_kernel"]
        length = int(self.shape["slowed_kv_len" if is_slowed else "kv_len"])
        self._inputs = self.by_length[length]
        found = super().candidate(provider, kernel)
        found.describe()["note"] = f"slowed on purpose: {length} keys" if is_slowed else ""
        return found


def _shortened(inputs: Inputs, length: int) -> Inputs:
    """With the first `length` keys and values."""
    q, k, v = inputs.tensors
    tensors = (q, k[:, :length].contiguous(), v[:, :length].contiguous())
    return replace(inputs, judge=Judge(tensors, entries=CHECKED_ENTRIES))
