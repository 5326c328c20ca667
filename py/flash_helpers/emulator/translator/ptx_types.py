"""PTX types and what they are in C++."""

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


TYPES = {
    name: PtxType(name, bits, kind)
    for name, bits, kind in [
        *((f"{kind}{bits}", bits, kind) for kind in "usb" for bits in (8, 16, 32, 64)),
        *(("f32", 32, "f"), ("f64", 64, "f"), ("pred", 1, "pred"), ("tf32", 32, "tf32")),
        *((kind, 16, kind) for kind in ("f16", "bf16")),
        *((kind, 32, kind) for kind in ("f16x2", "bf16x2")),
    ]
}
U16, U32, U64 = (TYPES[name] for name in ("u16", "u32", "u64"))
S32, F32, PRED = (TYPES[name] for name in ("s32", "f32", "pred"))


def storage(ptx_type: PtxType) -> str:
    """The C++ type of a register: floats as they are, all else as unsigned bits."""
    if ptx_type.kind == "pred":
        return "bool"
    return ptx_type.cpp if ptx_type.is_float else f"u{ptx_type.bits}"
