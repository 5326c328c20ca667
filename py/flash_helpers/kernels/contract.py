"""`KernelConfig`: what the configurations of every kernel family have in common.

A configuration is a frozen dataclass of its family. The order of its fields is a contract with the
C++ struct of the same name (tested). A value is well-formed by construction; whether it can be
built is the question of `Family.violations` (family.py).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import asdict, astuple, dataclass, fields
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.dtypes import DType
from .flops import calc_self_attn_flop

# An upper bound on every number keeps the names short and the parser's work bounded.
MAX_FIELD_VALUE = 65535


class Variant(Enum):
    """The kernels that one configuration can have; the values are the names in
    csrc/include/flash/core/variant.h."""

    # Of a forward pass: which problems a kernel takes. A call launches one of them.
    WHOLE = "whole"  # lengths that are multiples of the blocks, no mask
    ANY = "any"  # any lengths, and the causal mask
    # Of a backward pass: what a kernel computes. A call launches them in this order, for any
    # lengths and masks (backward_config.py).
    DOTS = "dots"  # what the softmax leaves to each query row
    KEYS = "keys"  # the gradients of K and V
    QUERIES = "queries"  # the gradient of Q
    ROUND = "round"  # the gradient of Q from its sums, where the kernel of K and V adds them up
    # Of what serves: a call launches those that it needs, in this order (serve_config.py).
    APPEND = "append"  # new keys and values go to the cache, and are rotated, as are queries
    SERVE = "serve"  # attention
    COMBINE = "combine"  # the merged splits of the keys


class CppEnum(IntEnum):
    """An enumeration of a family's config.h, with the same names and numbers."""

    def to_cpp_str(self) -> str:
        """The C++ spelling inside the family's namespace."""
        words = "".join(word.capitalize() for word in self.name.split("_"))
        return f"{type(self).__name__}::k{words}"


@dataclass(frozen=True)
class WarpSpecialisation:
    """A producer loads, and `n_mma_groups` groups of `group_threads` threads multiply."""

    ping_pong: bool  # the groups take turns at the tensor cores
    n_mma_groups: int
    group_threads: int
    n_buffers: int  # of K and V


@dataclass(frozen=True, order=True)
class KernelConfig(ABC):
    """The kernels of one configuration, of any family."""

    # The family's name, as in the symbols of its kernels; also the C++ namespace of what they
    # need, and the folder of its headers.
    FAMILY: ClassVar[str]
    # The C++ struct of its launch arguments.
    ARGUMENTS: ClassVar[str]
    # Enumerations of its fields, beside DType, by name.
    ENUMS: ClassVar[dict[str, type[CppEnum]]] = {}
    # What nvcc's -arch is for the PTX that the emulator runs.
    PTX_ARCHITECTURE: ClassVar[str]
    # Whether its thread blocks stay, one on each multiprocessor, and take tile after tile.
    PERSISTENT: ClassVar[bool] = False
    # Whether it is of a backward pass: a BackwardKernelConfig (backward_config.py).
    GRADIENTS: ClassVar[bool] = False
    # Whether it serves sequences of different lengths and caches: a ServeKernelConfig
    # (serve_config.py).
    SERVES: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # 1 == True == DType-like numbers compare equal in Python: without this check two
        # configurations could be equal and yet render as different C++.
        for field in fields(self):
            lowest = self.lowest_value(field.name)
            kind = self.kind(str(field.type))
            _check_field(field.name, kind, getattr(self, field.name), lowest)

    def __str__(self) -> str:
        return self.short_form()

    if TYPE_CHECKING:  # each family has them: as fields, or as it likes

        @property
        def dtype(self) -> DType:
            """The element type of Q, K, V and the output."""

        @property
        def d_head(self) -> int:
            """The head dimension."""

    @classmethod
    def kind(cls, annotation: str) -> type:
        """The Python type of a field, from its annotation."""
        kinds: dict[str, type] = {"DType": DType, "int": int, "bool": bool, **cls.ENUMS}
        return kinds[annotation]

    @classmethod
    def lowest_value(cls, field: str) -> int:
        """The smallest number that a field may have."""
        return 1

    def values(self) -> dict[str, Any]:
        """The fields by name, for files and messages."""
        return asdict(self)

    def order_key(self) -> tuple[object, ...]:
        """For sorting across families; within one, the order of the dataclass."""
        return (self.FAMILY, 0, *astuple(self))

    # Names and text.

    @abstractmethod
    def short_form(self) -> str:
        """The configuration for people: a cell of a table."""

    @abstractmethod
    def kernel_name(self) -> str:
        """The configuration's name in ncu, cuobjdump, CSV files and test ids: the symbol of its
        kernel, or of the first if there are several."""

    @abstractmethod
    def symbol(self, variant: Variant) -> str:
        """The symbol of one of its kernels. Raises ValueError for a variant that it never has."""

    def to_cpp_struct(self) -> str:
        """A C++20 expression for this configuration, with designated initialisers."""
        namespace = f"flash::{self.FAMILY}"
        values = ", ".join(
            f".{f.name} = {_cpp_value(getattr(self, f.name), namespace)}" for f in fields(self)
        )
        return f"{self.cpp_type()}{{{values}}}"

    def cpp_type(self) -> str:
        """The C++ struct, the same for all configurations of a family."""
        return f"flash::{self.FAMILY}::{type(self).__name__}"

    def to_cpp_bytes(self) -> bytes:
        """The C++ struct in memory: numbers and enumerations are ints."""
        values = [getattr(self, field.name) for field in fields(self)]
        kinds = "".join("?" if isinstance(value, bool) else "i" for value in values)
        return struct.pack(f"@{kinds}0i", *values)

    def header(self) -> str:
        """The header of the kernels' body, as an #include names it."""
        return f"flash/{self.FAMILY}/forward/forward.cuh"

    def body(self) -> str:
        """The template that takes the configuration."""
        return f"flash::{self.FAMILY}::forward"

    def body_arguments(self, variant: Variant) -> tuple[str, ...]:
        """The template arguments after the configuration."""
        return ()

    def size_arguments(self, variant: Variant) -> str:
        """What the C++ struct's n_threads() and min_blocks_per_sm() are called with for one of the
        kernels: nothing, where all have the same."""
        return ""

    # Which kernels there are, and which problems they take.

    @abstractmethod
    def variants(self) -> tuple[Variant, ...]:
        """Those that nvcc can compile; the emulator has all of them."""

    def first_variant(self) -> Variant:
        """The one that is meant where none is named: that of `kernel_name()`."""
        return self.variants()[0]

    def built_variants(self) -> tuple[Variant, ...]:
        """Those that a build of the extension has."""
        return self.variants()

    @abstractmethod
    def variant_for(self, seqlen_q: int, seqlen_k: int, causal: bool) -> Variant:
        """Which of its kernels a problem needs, whether or not there is one. The family's file in
        csrc/runtime decides alike."""

    def warp_specialisation(self) -> WarpSpecialisation | None:
        """How warpgroups share the work; None: they all do the same."""
        return None

    def is_persistent(self, variant: Variant) -> bool:
        """Whether the thread blocks of one of its kernels stay."""
        return self.PERSISTENT

    def cluster(self, variant: Variant) -> int:
        """Thread blocks of a cluster of one of its kernels, that read each other's shared memory;
        1: there are none."""
        return 1

    def is_deterministic(self) -> bool:
        """Whether what it writes is bitwise the same in every run."""
        return True

    def kept_for_study(self) -> str:
        """Why no user's call should get this kernel; empty if nothing is against it."""
        return ""

    # What it computes, and with what.

    def attn_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return calc_self_attn_flop(n_samples, n_heads, seq_len, self.d_head)

    @abstractmethod
    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        """Everything that the tiled kernel computes."""

    # Derived sizes, as in the C++ struct.

    @abstractmethod
    def n_threads(self) -> int: ...

    @abstractmethod
    def smem_bytes(self) -> int: ...

    def threads_of(self, variant: Variant) -> int:
        """`n_threads` of one of its kernels, where they differ."""
        return self.n_threads()

    def smem_of(self, variant: Variant) -> int:
        """`smem_bytes` of one of its kernels, where they differ."""
        return self.smem_bytes()

    @abstractmethod
    def blocks(self) -> tuple[int, int]:
        """(query rows, key rows) of a block."""


def config_order(config: KernelConfig) -> tuple[object, ...]:
    """The key of `order_key`, for sorted()."""
    return config.order_key()


def whole_blocks_violation(config: KernelConfig, seqlen_q: int, seqlen_k: int) -> str:
    """Why a kernel for whole blocks does not take these lengths; empty if it does."""
    rows, keys = config.blocks()
    for length, block, name in ((seqlen_q, rows, "B_r"), (seqlen_k, keys, "B_c")):
        if length % block:
            return f"sequence {length} is not divisible by its {name} = {block}"
    return ""


def _check_field(name: str, expected: type, value: object, lowest: int) -> None:
    if type(value) is not expected:
        got = type(value).__name__
        raise ValueError(f"{name} must be of type {expected.__name__}, got {value!r} ({got})")
    if expected is int and not lowest <= value <= MAX_FIELD_VALUE:  # type: ignore[operator]
        raise ValueError(f"{name} must be in {lowest}..{MAX_FIELD_VALUE}, got {value}")


def _cpp_value(value: DType | CppEnum | int | bool, namespace: str) -> str:
    if isinstance(value, DType):
        return value.to_cpp_str()
    if isinstance(value, CppEnum):
        return f"{namespace}::{value.to_cpp_str()}"
    return str(value).lower()
