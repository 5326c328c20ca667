"""`KernelConfig`: what the configurations of every kernel family have in common.

A family is a frozen dataclass with its own fields. The field order is a contract with the C++
struct of the same name (tested). A value is well-formed by construction; whether it can be built
is the question of `constraints.violations`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from typing import ClassVar

from ..base.dtypes import DType
from .flops import calc_self_attn_flop

# An upper bound on every number keeps the names short and the parser's work bounded.
MAX_FIELD_VALUE = 65535


class CppEnum(IntEnum):
    """An enumeration of a family's config.h, with the same names and numbers."""

    def to_cpp_str(self) -> str:
        """The C++ spelling inside the family's namespace."""
        words = "".join(word.capitalize() for word in self.name.split("_"))
        return f"{type(self).__name__}::k{words}"


@dataclass(frozen=True, order=True)
class KernelConfig(ABC):
    """One forward kernel, of any family."""

    # The family's name, as in the symbols of its kernels: also the folder of its headers, and the
    # namespace of what stands in them.
    FAMILY: ClassVar[str]
    # The C++ struct of its launch arguments.
    ARGUMENTS: ClassVar[str]
    # Enumerations of its fields, beside DType, by name.
    ENUMS: ClassVar[dict[str, type[CppEnum]]] = {}

    dtype: DType
    d_head: int

    def __post_init__(self) -> None:
        # 1 == True == DType-like numbers compare equal in Python: without this check two
        # configurations could be equal and yet render as different C++.
        for field in fields(self):
            lowest = self.lowest_value(field.name)
            kind = self.kind(str(field.type))
            _check_field(field.name, kind, getattr(self, field.name), lowest)

    def __str__(self) -> str:
        return self.short_form()

    @classmethod
    def kind(cls, annotation: str) -> type:
        """Of a field, from its annotation."""
        kinds: dict[str, type] = {"DType": DType, "int": int, "bool": bool, **cls.ENUMS}
        return kinds[annotation]

    @classmethod
    def lowest_value(cls, field: str) -> int:
        """Of a field with a number."""
        return 1

    @abstractmethod
    def short_form(self) -> str:
        """The configuration for people: a cell of a table."""

    @abstractmethod
    def kernel_name(self) -> str:
        """The kernel's symbol: also its name in ncu, cuobjdump, CSV files and test ids."""

    def symbol(self, general: bool) -> str:
        """The symbol of the configuration's kernel for whole blocks without a mask, or of its
        `general` one; a family whose one kernel takes everything has no other."""
        if general:
            raise ValueError(f"{self} has no general kernel beside the one that takes everything")
        return self.kernel_name()

    def to_cpp_struct(self) -> str:
        """A C++20 expression for this configuration, with designated initialisers."""
        namespace = f"flash::{self.FAMILY}"
        values = ", ".join(
            f".{f.name} = {_cpp_value(getattr(self, f.name), namespace)}" for f in fields(self)
        )
        return f"{namespace}::{type(self).__name__}{{{values}}}"

    # Where the kernel's body is; earlier versions override these (previous.py).

    def header(self) -> str:
        """The header of the body, as an #include names it."""
        return f"flash/{self.FAMILY}/forward/forward.cuh"

    def body(self) -> str:
        """The template that takes the configuration."""
        return f"flash::{self.FAMILY}::forward"

    def body_violations(self) -> list[str]:
        """Why this body does not take the configuration."""
        return []

    def attn_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return calc_self_attn_flop(n_samples, n_heads, seq_len, self.d_head)

    @abstractmethod
    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        """Everything that the tiled kernel computes."""

    def length_violation(self, seqlen_q: int, seqlen_k: int) -> str | None:
        """Why the kernel does not take these lengths; None if it does."""
        return None

    # Derived sizes, as in the C++ struct.

    @abstractmethod
    def n_threads(self) -> int: ...

    @abstractmethod
    def smem_bytes(self) -> int: ...

    @abstractmethod
    def blocks(self) -> tuple[int, int]:
        """(query rows, key rows) of a block."""


def config_order(config: KernelConfig) -> tuple[object, ...]:
    """A sort key across families; within one, the order of the dataclass, and earlier steps of the
    family (previous.py) behind its live kernels, step by step."""
    return (config.FAMILY, getattr(config, "step", 0), *astuple(config))


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
