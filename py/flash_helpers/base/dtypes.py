"""The two element types, numbered as PyTorch numbers them (so no torch import is needed)."""

from __future__ import annotations

from enum import IntEnum

from .lazy import torch


class DType(IntEnum):
    """Element type of Q, K, V and O. The values are PyTorch's `ScalarType` numbers."""

    FP16 = 5
    BF16 = 15

    def to_cpp_str(self) -> str:
        """The C++ spelling, as csrc/include/flash/core/dtype.h defines it."""
        return f"flash::DType::k{self.name}"

    def to_torch_dtype(self) -> torch.dtype:
        return {DType.FP16: torch.float16, DType.BF16: torch.bfloat16}[self]

    @classmethod
    def from_torch_dtype(cls, dtype: torch.dtype) -> DType:
        for member in cls:
            if member.to_torch_dtype() == dtype:
                return member
        raise ValueError(
            f"dtype {dtype} is not supported: expected torch.float16 or torch.bfloat16; cast with "
            ".half() or .bfloat16()"
        )

    @classmethod
    def from_string(cls, text: str) -> DType:
        """`FP16`, `bf16`, `5` or `15`; nothing else (no blanks, no other digits)."""
        for member in cls:
            if text in (member.name, member.name.lower(), str(member.value)):
                return member
        valid = ", ".join(f"{m.name} ({m.value})" for m in cls)
        raise ValueError(f"dtype {text!r} is not valid: expected one of {valid}")

    @property
    def bytes(self) -> int:
        """Of one element."""
        return 2

    @property
    def eps(self) -> float:
        """Half a unit in the last place at 1.0: 2^-11 for FP16, 2^-8 for BF16."""
        return 2.0**-11 if self is DType.FP16 else 2.0**-8
