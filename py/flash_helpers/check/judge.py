"""Is an output right, and did the kernel leave its inputs alone? Asked here, whoever ran it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..base.lazy import torch
from .reference import attention_reference
from .tolerance import Comparison, bitwise_equal, compare

Qkv: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor]"
Part = slice | Sequence[int]
EVERYTHING = slice(None)


class Judge:
    """Inputs with pristine copies, and the reference of what is compared: of the batch the
    `entries`, in them the `heads` (of Q; of K and V too, so all of them where heads share these).
    """

    def __init__(
        self, tensors: Qkv, *, causal: bool = False, entries: Part = EVERYTHING,
        heads: Part = EVERYTHING,
    ) -> None:  # fmt: skip
        self.tensors = tensors
        self._part = entries, heads
        self._pristine = [tensor.clone() for tensor in tensors]
        q, k, v = map(self._compared, tensors)
        self._reference, _ = attention_reference(q, k, v, causal=causal)

    def poisoned(self) -> torch.Tensor:
        """A new output full of NaN: what a kernel does not write is seen."""
        q, _, v = self.tensors
        return q.new_full((*q.shape[:3], v.shape[3]), float("nan"))

    def restore(self) -> str:
        """What the kernel did to its inputs, or an empty string; undone for the next one."""
        pairs = list(zip("qkv", self.tensors, self._pristine, strict=True))
        changed = [name for name, tensor, copy in pairs if not bitwise_equal(tensor, copy)]
        for _, tensor, copy in pairs:
            tensor.copy_(copy)
        return f"it overwrote its input {', '.join(changed)}" if changed else ""

    def compare(self, output: torch.Tensor) -> Comparison:
        return compare(self._compared(output), self._reference)

    def problem_with(self, output: torch.Tensor) -> str:
        """What is wrong with it, or with the inputs after it, in a sentence; or an empty string."""
        if overwritten := self.restore():
            return overwritten
        outcome = self.compare(output)
        if not outcome.passed:
            return outcome.describe()
        return "" if bool(output.isfinite().all()) else "NaN or infinity in what was not compared"

    def _compared(self, tensor: torch.Tensor) -> torch.Tensor:
        entries, heads = self._part
        return tensor[entries][:, :, heads]
