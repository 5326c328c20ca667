"""`BackwardKernelConfig`: what the configurations of every backward pass have in common.

One configuration has several kernels, which a call launches one after the other, each with the same
argument record (backward_args.py). They take any lengths and masks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from .backward_args import INT_FIELDS, ROW_STATS_BLOCK, row_stats_rows, unpack_backward_args
from .contract import CppEnum, KernelConfig, Variant
from .flops import BACKWARD_OVER_FORWARD

DOTS_THREADS = 128

_SUFFIXES = {
    Variant.DOTS: "_dots", Variant.KEYS: "", Variant.QUERIES: "_queries", Variant.ROUND: "_round",
}  # fmt: skip

_OUTPUTS = {
    Variant.DOTS: ("row_stats",),
    Variant.KEYS: ("d_k", "d_v"),
    Variant.QUERIES: ("d_q",),
    Variant.ROUND: ("d_q",),
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem that a launch depends on."""

    batch: int
    seqlen_q: int
    seqlen_k: int
    n_heads_q: int
    n_heads_kv: int
    # Of different lengths, one after the other: the lengths above are rows of all (cu_seqlens).
    packed: bool = False
    causal: bool = False

    def as_one(self) -> Sizes:
        """All rows as one sequence."""
        return replace(self, batch=1)


def called_sizes(record: bytes) -> Sizes:
    """Those of a call's argument record, of sequences of equal lengths."""
    called = unpack_backward_args(record)
    batch, seqlen_q, seqlen_k, heads, kv_heads = (int(called[name]) for name in INT_FIELDS)
    return Sizes(batch, seqlen_q, seqlen_k, heads, kv_heads, causal=bool(called["causal"]))


@dataclass(frozen=True, order=True)
class BackwardKernelConfig(KernelConfig):
    """The kernels of one backward pass, of any family."""

    GRADIENTS: ClassVar[bool] = True
    # The word behind the numbers of a short form.
    WORD: ClassVar[str]
    # The kernels that have a shape.
    SHAPES: ClassVar[tuple[Variant, ...]] = (Variant.KEYS, Variant.QUERIES)
    # Fields behind the shapes, and what stands before their values in symbols.
    EXTRAS: ClassVar[dict[str, str]] = {}

    def short_form(self) -> str:
        """`(FP16, 128, 128, 64, 8, 128, 64, 8): ampere_backward`: dtype, d_head, the shapes of the
        kernels of dK and dV, and of dQ, and what else there is."""
        shapes = [number for variant in self.SHAPES for number in self.shape(variant)]
        values = ", ".join(map(str, (*shapes, *self._extras().values())))
        return f"({self.dtype.name}, {self.d_head}, {values}): {self.WORD}"

    def kernel_name(self) -> str:
        """As `backward_names.parse_symbol` reads it."""
        words = [self.symbol_start(), self.dtype.name.lower(), f"d{self.d_head}"]
        third = self.shape_fields()[2][0]
        for variant in self.SHAPES:
            rows, columns, count = self.shape(variant)
            words.append(f"{variant.value[0]}{rows}x{columns}{third}{count}")
        extras = self._extras().items()
        return "_".join(
            (*words, *(f"{self.EXTRAS[name]}{value}".lower() for name, value in extras))
        )

    def _extras(self) -> dict[str, int | str]:
        """As they are spelled."""
        values = {name: getattr(self, name) for name in self.EXTRAS}
        return {n: x.name if isinstance(x, CppEnum) else x for n, x in values.items()}

    @classmethod
    def symbol_start(cls) -> str:
        return f"flash_bwd_{cls.FAMILY.replace('_bwd', '')}"

    @classmethod
    def shape_fields(cls) -> tuple[str, ...]:
        """What a kernel's shape consists of: rows that stay with a thread block, columns of a block
        that passes by, and a third, whose first letter stands in symbols. The configuration's
        fields have these names behind the variant's."""
        names = (f.name for f in fields(cls))
        prefix = f"{Variant.KEYS.value}_"
        return tuple(name.removeprefix(prefix) for name in names if name.startswith(prefix))

    def shape(self, variant: Variant) -> tuple[int, int, int]:
        """By the names of `shape_fields`."""
        rows, columns, third = (
            getattr(self, f"{variant.value}_{name}") for name in self.shape_fields()
        )
        return rows, columns, third

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        """All matmuls, with every block whole, and per score two fused multiply-adds, an
        exponential, a subtraction and a product in each kernel."""
        flop = 0
        for variant in self.SHAPES:
            rows, columns, _ = self.shape(variant)
            scores = -(-seq_len // rows) * rows * -(-seq_len // columns) * columns
            flop += scores * (2 * self.n_matmuls(variant) * self.d_head + 7)
        return n_samples * n_heads * flop

    def n_matmuls(self, variant: Variant) -> int:
        """Of a block that passes by: scores, gradients of weights, and sums."""
        return 4 if variant is Variant.KEYS else 3

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
    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int: ...

    def dots_rows(self) -> int:
        """Query rows of a thread block of the kernel `DOTS`."""
        return DOTS_THREADS // (8 if self.d_head % 64 == 0 else 4)

    def rows(self, variant: Variant) -> int:
        """Rows of a thread block: keys of `KEYS`, queries of `QUERIES`."""
        return self.shape(variant)[0]

    def blocks(self) -> tuple[int, int]:
        """Of the kernel of dK and dV."""
        rows, columns, _ = self.shape(Variant.KEYS)
        return columns, rows

    def outputs(self, variant: Variant) -> tuple[str, ...]:
        """What the kernel writes, by the names of the argument record."""
        return _OUTPUTS[variant]

    def scratch(self) -> tuple[str, ...]:
        """What else the kernels need memory for, by the names of the argument record."""
        return ("row_stats",)

    def sums_columns(self) -> int:
        """Of the sums of dQ, if the kernels have such: 4 bytes of memory for each of their rows."""
        return self.d_head

    def refusal(self, beside: Sequence[str], mean_rows: float = math.inf) -> str | None:
        """Why it does not serve calls with what stands in `beside` (softcap, sinks), and of packed
        sequences that have so many queries on average."""
        return None

    def needs_heads_together(self) -> bool:
        """Whether the heads of packed rows must lie behind each other, without gaps."""
        return False

    def stats_rows(self, sizes: Sizes) -> int:
        """Rows of RowStats, and of sums of dQ, of one head."""
        return row_stats_rows(sizes.seqlen_q, self.stats_block())

    def sums_shape(self, sizes: Sizes) -> tuple[int, int, int, int]:
        """Of the memory that is called d_q_sums."""
        return sizes.batch, sizes.n_heads_q, self.stats_rows(sizes), self.sums_columns()

    def stats_block(self) -> int:
        """What these rows are filled up to."""
        return ROW_STATS_BLOCK

    def stays(self) -> bool:
        """Whether thread blocks of the large kernel stay, one on each multiprocessor, and take tile
        after tile."""
        return False

    def is_persistent(self, variant: Variant) -> bool:
        return variant is Variant.KEYS and self.stays()

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        """Thread blocks of a launch; 0: there is nothing to do. The family's file in csrc/runtime
        computes the same."""
        if variant is Variant.KEYS:
            return -(-sizes.seqlen_k // self.rows(variant)) * sizes.n_heads_kv * sizes.batch
        if variant is Variant.DOTS:
            blocks = self.stats_rows(sizes) // self.dots_rows()
        else:
            blocks = -(-sizes.seqlen_q // self.rows(variant))
        return blocks * sizes.n_heads_q * sizes.batch


def unsupported_values(config: KernelConfig, allowed: Mapping[str, Collection[int]]) -> list[str]:
    """A sentence for each field whose value is not among those allowed."""
    return [
        f"{name} = {getattr(config, name)} is not supported: it must be "
        f"{' or '.join(map(str, values))}."
        for name, values in allowed.items()
        if getattr(config, name) not in values
    ]
