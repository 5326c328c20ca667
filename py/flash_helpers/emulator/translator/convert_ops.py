"""cvt: between integers, floats and the 16-bit formats."""

from __future__ import annotations

from .arithmetic_ops import HALF, ROUNDING
from .emitter import Emitter
from .ptx_parser import Instruction
from .ptx_types import F32, PtxType
from .registry import Modifiers, Unsupported, computes

_TO_INTEGRAL = {
    "rni": "Round::kNearest",
    "rzi": "Round::kZero",
    "rmi": "Round::kDown",
    "rpi": "Round::kUp",
}


@computes("cvt")
def cvt(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    source = mods.type()
    target = mods.type()
    integral = mods.take(*_TO_INTEGRAL)
    rounding = mods.take(*ROUNDING, "rna")
    ftz, saturating = bool(mods.take("ftz")), bool(mods.take("sat"))
    relu = bool(mods.take("relu"))
    mods.done()
    if target.kind in ("f16x2", "bf16x2"):
        return _pack(e, ins, target, source, rounding, relu)
    value = e.read(ins.operands[1], source)
    if source.is_integer and target.is_integer:
        value = (
            f"to_integer_range<{target.cpp}>({value})" if saturating else f"{target.cpp}({value})"
        )
    elif source.is_integer:
        value = _integer_to_float(value, source, target, rounding)
    elif target.is_integer:
        widened = f"ftz({value})" if ftz and source is F32 else _widen(value, source)
        # What NaN becomes, as the hardware has it: the top bit where 64 bits are involved, else 0.
        nan = 1 << target.bits - 1 if 64 in (source.bits, target.bits) else 0
        mode = _TO_INTEGRAL[integral or "rni"]
        value = f"to_integer<{target.cpp}>({widened}, {mode}, {nan}ull)"
    else:
        if relu:
            raise Unsupported(".relu of one value")
        value = _float_to_float(value, source, target, rounding or integral, ftz)
        value = f"saturate({value})" if saturating else value
    return (target, value)


def _pack(
    e: Emitter, ins: Instruction, target: PtxType, source: PtxType, rounding: str, relu: bool
) -> tuple[PtxType, str]:
    if source is not F32 or rounding not in ("rn", "rz") or len(ins.operands) != 3:
        raise Unsupported("packing conversion other than .rn or .rz of two .f32")
    high, low = (e.read(operand, F32) for operand in ins.operands[1:])
    if relu:
        high, low = f"relu({high})", f"relu({low})"
    scalar = target.kind.removesuffix("x2")
    if rounding == "rn":
        return (target, f"pack_{target.kind}({high}, {low})")
    narrow = f"f32_to_{scalar}_rounded"
    return (
        target,
        f"u32{{{narrow}({high}, Round::kZero)}} << 16 | {narrow}({low}, Round::kZero)",
    )


def _widen(value: str, source: PtxType) -> str:
    if source.kind in HALF:
        return f"{HALF[source.kind][0]}({value})"
    if source.is_float:
        return value
    raise Unsupported(f"conversion from {source.name}")


def _integer_to_float(value: str, source: PtxType, target: PtxType, rounding: str) -> str:
    if target.is_float:
        if rounding in ("", "rn"):
            return f"{target.cpp}({value})"
        wide = "s64" if source.kind == "s" else "u64"
        return f"{wide}_to_{target.cpp}_rounded({wide}({value}), {ROUNDING[rounding]})"
    if target.kind == "f16" and rounding == "rn" and source.bits <= 32:
        return f"f32_to_f16(f32({value}))"  # what f32 cannot hold exactly is infinite in f16
    raise Unsupported(f"conversion of {source.name} to {target.name}")


def _float_to_float(value: str, source: PtxType, target: PtxType, mode: str, ftz: bool) -> str:
    if target.kind == "tf32" and mode == "rna":
        return f"f32_to_tf32({value})"
    wide = f"canonical(ftz({value}))" if ftz and source is F32 else _widen(value, source)
    narrow = HALF[target.kind][1] if target.kind in HALF else target.cpp
    if source == target and mode in _TO_INTEGRAL:
        value = f"{narrow}(round_to_integer({wide}, {_TO_INTEGRAL[mode]}))"
    elif target.kind in HALF and source.bits <= 32:
        exact = mode in ("", "rn")
        value = f"{narrow}({wide})" if exact else f"{narrow}_rounded({wide}, {ROUNDING[mode]})"
    elif not target.is_float:
        raise Unsupported(f"conversion of {source.name} to {target.name}")
    elif source.bits > target.bits and mode not in ("", "rn"):
        value = f"f64_to_f32_rounded({wide}, {ROUNDING[mode]})"
    else:
        value = f"{target.cpp}({wide})"
    if target is not F32:
        return value
    value = value if source.bits == 64 else f"canonical({value})"
    return f"ftz({value})" if ftz else value
