"""The scratch memory of calls whose keys thread blocks share."""

from __future__ import annotations

import pytest
import torch

from flash_attention.serving import scratch


def poisoned_scratch(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """What a call gets as scratch memory, whose log-sum-exps are NaN before it."""
    memory: dict[str, torch.Tensor] = {}
    real = scratch.memory

    def poisoned(words: dict[str, int], device: torch.device) -> dict[str, torch.Tensor]:
        memory.update(real(words, device))
        memory["lse_partial"].fill_(torch.nan)
        return memory

    monkeypatch.setattr(scratch, "memory", poisoned)
    return memory
