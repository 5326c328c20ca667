"""`BackwardKernelConfig`: what the configurations of every backward pass have in common.

One configuration has several kernels, which a call launches one after the other, each with the same
argument record (backward_args.py). They take any lengths and masks.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from .backward_args import row_stats_rows
from .contract import KernelConfig, Variant
from .flops import BACKWARD_OVER_FORWARD

_SUFFIXES = {Variant.DOTS: "_dots", Variant.KEYS: "", Variant.QUERIES: "_queries"}

_OUTPUTS = {
    Variant.DOTS: ("row_stats",),
    Variant.KEYS: ("d_k", "d_v"),
    Variant.QUERIES: ("d_q",),
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem that a launch depends on."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    n_heads_q: int
    n_heads_kv: int


@dataclass(frozen=True, order=True)
class BackwardKernelConfig(KernelConfig):
    """The kernels of one backward pass, of any family."""

    GRADIENTS: ClassVar[bool] = True
    # Whether every gradient is bitwise the same in every run. Those of K and V always are.
    DETERMINISTIC: ClassVar[bool] = True

    def symbol(self, variant: Variant) -> str:
        if variant not in self.variants():
            raise ValueError(f"{self} has no kernel {variant.value}")
        return self.kernel_name() + _SUFFIXES[variant]

    def header(self) -> str:
        return f"flash/{self.FAMILY}/backward.cuh"

    def body(self) -> str:
        return f"flash::{self.FAMILY}::backward"

    def body_arguments(self, variant: Variant) -> tuple[str, ...]:
        return (self.size_arguments(variant),)

    def size_arguments(self, variant: Variant) -> str:
        return f"flash::Variant::k{variant.value.capitalize()}"

    def variants(self) -> tuple[Variant, ...]:
        """In the order of their launches."""
        return Variant.DOTS, Variant.KEYS, Variant.QUERIES

    def first_variant(self) -> Variant:
        return Variant.KEYS

    def variant_for(self, seqlen_q: int, seqlen_k: int, causal: bool) -> Variant:
        return self.first_variant()

    def attn_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return round(BACKWARD_OVER_FORWARD * super().attn_flop(n_samples, n_heads, seq_len))

    def n_threads(self) -> int:
        return self.threads_of(self.first_variant())

    def smem_bytes(self) -> int:
        return self.smem_of(self.first_variant())

    @abstractmethod
    def threads_of(self, variant: Variant) -> int: ...

    @abstractmethod
    def smem_of(self, variant: Variant) -> int: ...

    @abstractmethod
    def dots_rows(self) -> int:
        """Query rows of a thread block of the kernel `DOTS`."""

    @abstractmethod
    def rows(self, variant: Variant) -> int:
        """Rows of a thread block: keys of `KEYS`, queries of `QUERIES`."""

    def outputs(self, variant: Variant) -> tuple[str, ...]:
        """What the kernel writes, by the names of the argument record."""
        return _OUTPUTS[variant]

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        """Thread blocks of a launch; 0: there is nothing to do. The family's file in csrc/runtime
        computes the same."""
        if variant is Variant.KEYS:
            return -(-sizes.seqlen_k // self.rows(variant)) * sizes.n_heads_kv * sizes.batch
        if variant is Variant.DOTS:
            blocks = row_stats_rows(sizes.seqlen_q) // self.dots_rows()
        else:
            blocks = -(-sizes.seqlen_q // self.rows(variant))
        return blocks * sizes.n_heads_q * sizes.batch
