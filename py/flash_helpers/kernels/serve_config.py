"""`ServeKernelConfig`: what the configurations of every family have in common that serves sequences
of different lengths and caches.

One configuration has three kernels with the same argument record (serve_args.py): appending to a
cache and rotation, attention, and the merging of splits. A call launches those that it needs. They
take all lengths, windows, tables and so on.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..base.dtypes import DType
from .contract import KernelConfig, Variant

# Queries, or rows of a KV head, of the average sequence from which on their number says nothing
# about which kernel serves a call, nor how.
TELLING_ROWS = 768
# KV heads of all sequences together that give nearly every multiprocessor a tile: whether there are
# as many says which kernel serves a call.
MANY_HEADS = 128
# And up to how many their number says in how many parts the keys of each are cut.
FEW_HEADS = 4
# And up to how many each has its keys cut into so many parts that tiles of fewer rows serve it
# better, where a sequence has up to so many keys (docs/kernels/06-serving.md).
CUT_HEADS = 8
FEW_KEYS = 2**13
# KV heads of all sequences from which on new tokens are served by two small thread blocks on each
# multiprocessor, one of which reads while the other ends a tile; with fewer tiles there would be
# twice as many parts to merge (docs/kernels/06-serving.md).
PAIR_HEADS = 256
# What thread blocks that share the keys of a whole call may have to count: units of 32 keys of a
# tile of 16 rows, which are the smallest.
MOST_UNITS = 2**31 - 1
_UNIT_KEYS = 32
SMALLEST_TILE = 16  # rows
# Elements of a key in a latent cache (MLA) that are rotated; those before them are its value.
ROTATED_OF_LATENT = 64


@dataclass(frozen=True)
class ServeSizes:
    """The sizes of a call that a launch depends on."""

    batch: int
    n_rows: int  # of q, of all sequences together
    seqlen_q: int  # of each sequence; 0: the device knows them (cu_seqlens_q)
    n_heads_q: int
    n_heads_kv: int
    n_splits: int = 1
    n_new: int = 0  # rows that are appended to a cache
    rotates: bool = False
    d_head: int = 0
    d_v: int = 0
    is_fixed: bool = False  # n_splits is of each tile; else thread blocks may share all keys
    paged: bool = False  # a table or an index says where in a cache a sequence's keys lie
    page_size: int = 0  # keys of a page of the table
    window: int = 0  # keys that a query sees at most; 0: no such number

    def most_units(self, max_keys: int) -> int:
        """Units that there can be, if a sequence sees up to so many keys."""
        tiles = self.n_rows * self.n_heads_q // SMALLEST_TILE + self.batch * self.n_heads_kv
        return tiles * (max_keys // _UNIT_KEYS + 2)


@dataclass(frozen=True, order=True)
class ServeKernelConfig(KernelConfig):
    """The kernels of one configuration that serves, of any family."""

    SERVES: ClassVar[bool] = True
    WORD: ClassVar[str]  # of the short form
    SYMBOL_START: ClassVar[str]
    LETTERS: ClassVar[dict[str, str]]  # before each number in symbols, in the fields' order
    SWITCHES: ClassVar[tuple[str, ...]] = ()  # fields behind the numbers; spelt where they are on

    dtype: DType

    def short_form(self) -> str:
        """`(FP16, 128, 64, 64, 4, 2): ampere_serve`: the fields in their order."""
        words = "+".join((self.WORD, *self._words()))
        return f"({self.dtype.name}, {', '.join(map(str, self._numbers().values()))}): {words}"

    def kernel_name(self) -> str:
        numbers = (f"{self.LETTERS[name]}{number}" for name, number in self._numbers().items())
        return "_".join((self.SYMBOL_START, self.dtype.name.lower(), *numbers, *self._words()))

    def _numbers(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.LETTERS}

    def _words(self) -> list[str]:
        return [name for name in self.SWITCHES if getattr(self, name)]

    def symbol(self, variant: Variant) -> str:
        if variant not in self.variants():
            raise ValueError(f"{self} has no kernel {variant.value}")
        return self.kernel_name() + ("" if variant is Variant.SERVE else f"_{variant.value}")

    def header(self) -> str:
        return f"flash/{self.FAMILY}/serve.cuh"

    def body(self) -> str:
        return f"flash::{self.FAMILY}::serve"

    def body_arguments(self, variant: Variant) -> tuple[str, ...]:
        return (f"flash::Variant::k{variant.value.capitalize()}",)

    def variants(self) -> tuple[Variant, ...]:
        """In the order of their launches."""
        if self.shares_keys():
            return Variant.APPEND, Variant.SERVE
        return Variant.APPEND, Variant.SERVE, Variant.COMBINE

    def first_variant(self) -> Variant:
        """The kernel that stands for the configuration: nearly all of the time."""
        return Variant.SERVE

    def variant_for(self, seqlen_q: int, seqlen_k: int, causal: bool) -> Variant:
        return self.first_variant()

    def refusal(self, sizes: ServeSizes) -> str | None:
        """Why its kernels cannot serve a call, or would serve it worse than another family's; None:
        they can."""
        return None

    def can_split(self) -> bool:
        """Whether several thread blocks can share a sequence's keys."""
        return True

    def shares_keys(self) -> bool:
        """Whether the thread blocks of a launch share the keys of the whole call, whatever the
        lengths are: n_splits is their number then, and they merge their results themselves."""
        return False

    def shares(self, sizes: ServeSizes) -> bool:
        """Whether they do so in this call."""
        return self.shares_keys() and not sizes.is_fixed

    def splits_by_sizes(self, sizes: ServeSizes) -> bool:
        """Whether the launch depends on how many sequences, queries and keys there are: by them it
        is decided how many splits there are, and how much scratch memory."""
        return self.can_split() and not self.shares(sizes)

    @abstractmethod
    def min_blocks_per_sm(self) -> int:
        """Thread blocks that a multiprocessor holds."""

    def rows(self, sizes: ServeSizes) -> int:
        """That the average sequence has for tiles."""
        return -(-sizes.n_rows * (sizes.n_heads_q // sizes.n_heads_kv) // sizes.batch)

    def n_tiles(self, sizes: ServeSizes) -> int:
        """Tiles of all sequences, for one KV head and one split. Where the device alone knows the
        lengths, as many as there can be."""
        rows, _ = self.blocks()
        group = sizes.n_heads_q // sizes.n_heads_kv
        if sizes.seqlen_q:
            return -(-sizes.seqlen_q * group // rows) * sizes.batch
        return sizes.n_rows * group // rows + sizes.batch

    def grid(self, variant: Variant, sizes: ServeSizes) -> int:
        """Thread blocks of a launch; 0: there is nothing to do. The family's file in csrc/runtime
        computes the same."""
        if variant is Variant.APPEND:
            return sizes.n_new + (sizes.n_rows if sizes.rotates else 0)
        merges = variant is Variant.COMBINE
        if merges and (self.shares(sizes) or sizes.n_splits == 1):
            return 0
        if self.shares(sizes):
            return sizes.n_splits
        each = self.combining_blocks() if merges else sizes.n_splits
        return self.n_tiles(sizes) * sizes.n_heads_kv * each

    def combining_blocks(self) -> int:
        """Thread blocks that merge the splits of a tile together."""
        return 1

    def outputs(self, variant: Variant, n_splits: int) -> tuple[str, ...]:
        """What the kernel writes, by the names of the argument record."""
        if variant is Variant.APPEND:
            return "k", "v", "q"
        if self.shares_keys():
            return "o", "lse", "o_partial", "lse_partial", "arrivals"
        partial = variant is Variant.SERVE and n_splits > 1
        return ("o_partial", "lse_partial") if partial else ("o", "lse")

    def scratch(self, sizes: ServeSizes) -> dict[str, int]:
        """Words of 4 bytes of scratch memory that a call needs, by the names of the argument
        record; those of `arrivals` are zero before every launch, and left so."""
        n, rows = sizes.n_splits, self.blocks()[0]
        if self.shares(sizes):
            tiles = {"lse_partial": 4 * n * rows, "o_partial": 2 * n * rows * self.d_head}
            return {"arrivals": 4 * n, **tiles}
        rows = 0 if n == 1 else n * sizes.n_rows * sizes.n_heads_q
        return {"lse_partial": rows, "o_partial": rows * self.d_head} if rows else {}
