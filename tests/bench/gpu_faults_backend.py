"""The CUDA backend with kernels that really fault and hang, for tests on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flash_lab.bench.cuda_backend import CudaBackend, CudaCandidate

if TYPE_CHECKING:
    from flash_lab.bench.measure import Candidate


def fault() -> torch.Tensor:
    """An index out of bounds: a device-side assertion, after which the context is lost."""
    values = torch.zeros(8, device="cuda")
    return values[torch.full((8,), 10**6, device="cuda")]


def hang() -> torch.Tensor:
    torch.cuda._sleep(1 << 62)  # type: ignore[no-untyped-call]
    return torch.zeros(1, device="cuda")


class FaultyBackend(CudaBackend):
    def candidate(self, provider: str, kernel: str) -> Candidate:
        found = super().candidate("fa2", "fa2")
        assert isinstance(found, CudaCandidate)
        found.details["label"] = kernel
        if kernel in ("fault", "hang"):
            found.run = {"fault": fault, "hang": hang}[kernel]
        return found
