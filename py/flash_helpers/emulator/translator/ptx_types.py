"""PTX types and what they are in C++."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PtxType:
    name: str
    bits: int
    kind: str  # "u", "s", "b", "f", "f16", "bf16", "f16x2", "bf16x2", "tf32" or "pred"

    @property
    def n_bytes(self) -> int:
        return self.bits // 8

    @property
    def cpp(self) -> str:
        """The C++ type that values of this type are computed in."""
        if self.kind == "pred":
            return "bool"
        if self.kind in ("s", "f"):
            return f"{self.kind}{self.bits}"
        return f"u{self.bits}"

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("u", "s", "b")


TYPES: dict[str, PtxType] = {
    f"{kind}{bits}": PtxType(f"{kind}{bits}", bits, kind)
    for kind in "usb"
    for bits in (8, 16, 32, 64)
}
TYPES |= {
    name: PtxType(name, bits, kind)
    for name, bits, kind in [
        ("f32", 32, "f"),
        ("f64", 64, "f"),
        ("f16", 16, "f16"),
        ("bf16", 16, "bf16"),
        ("f16x2", 32, "f16x2"),
        ("bf16x2", 32, "bf16x2"),
        ("tf32", 32, "tf32"),
        ("pred", 1, "pred"),
    ]
}
U32 = TYPES["u32"]
U64 = TYPES["u64"]
S32 = TYPES["s32"]
F32 = TYPES["f32"]
B16 = TYPES["b16"]
PRED = TYPES["pred"]


def storage(ptx_type: PtxType) -> str:
    """The C++ type of a register: floats as they are, all else as unsigned bits."""
    if ptx_type.kind == "pred":
        return "bool"
    return ptx_type.cpp if ptx_type.is_float else f"u{ptx_type.bits}"
