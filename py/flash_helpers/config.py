"""`FlashForwardKernelConfig`: every choice of one forward kernel that is fixed at compile time.

The field order is a contract with csrc/include/flash/core/forward_config.h (tested). The class
renders a configuration in its three spellings; config_names.py reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .dtypes import DType
from .flops import calc_self_attn_flop, calc_total_flop

# An upper bound on every number keeps the names short and the parser's work bounded.
MAX_FIELD_VALUE = 65535

SHORT_FLAGS_BEFORE_LOAD = (
    ("async_copy", "async"),
    ("eager_load_blocks", "eager"),
    ("swizzled", "swizzled"),
)
SHORT_FLAGS_AFTER_LOAD = (
    ("mma_double_buffer_loads", "buffer"),
    ("optimized_softmax", "opt_softmax"),
)


@dataclass(frozen=True, order=True)
class FlashForwardKernelConfig:
    """One kernel of the Ampere family. Well-formed by construction; whether it can be built is
    the question of `constraints.violations`."""

    dtype: DType
    d_head: int
    B_r: int
    B_c: int
    n_warps: int
    async_copy: bool
    eager_load_blocks: bool
    swizzled: bool
    Q_mma_load_K_tiles: int
    K_mma_load_K_tiles: int
    V_mma_load_K_tiles: int
    mma_double_buffer_loads: bool
    optimized_softmax: bool

    def __post_init__(self) -> None:
        # 1 == True == DType-like numbers compare equal in Python: without this check two
        # configurations could be equal and yet render as different C++.
        for field in fields(self):
            _check_field(field.name, str(field.type), getattr(self, field.name))

    def __str__(self) -> str:
        return self.short_form()

    def short_form(self, include_d_head: bool = True, include_tup: bool = True) -> str:
        """`(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax`."""
        d_head = f"{self.d_head}, " if include_d_head else ""
        shape = f"({self.dtype.name}, {d_head}{self.B_r}, {self.B_c}, {self.n_warps}): "
        words = self._flags(SHORT_FLAGS_BEFORE_LOAD)
        words.append(f"load_{self._load_tiles()}_tiles")
        words += self._flags(SHORT_FLAGS_AFTER_LOAD)
        return (shape if include_tup else "") + "+".join(words)

    def kernel_name(self) -> str:
        """The kernel's symbol: also its name in ncu, cuobjdump, CSV files and test ids."""
        words = [
            "flash_fwd_sm80",
            self.dtype.name.lower(),
            f"d{self.d_head}",
            f"r{self.B_r}",
            f"c{self.B_c}",
            f"w{self.n_warps}",
            *self._flags(SHORT_FLAGS_BEFORE_LOAD),
            f"load_{self._load_tiles()}",
            *(flag.replace("_", "") for flag in self._flags(SHORT_FLAGS_AFTER_LOAD)),
        ]
        return "_".join(words)

    def to_cpp_struct(self) -> str:
        """A C++20 expression for this configuration, with designated initialisers."""
        own = fields(FlashForwardKernelConfig)
        values = ", ".join(f".{f.name} = {_cpp_value(getattr(self, f.name))}" for f in own)
        return f"flash::FlashForwardKernelConfig{{{values}}}"

    # Where the kernel's body is; other versions override these (previous.py).

    def header(self) -> str:
        """The header of the body, as an #include names it."""
        return "flash/sm80/forward.cuh"

    def body(self) -> str:
        """The template that takes the configuration."""
        return "flash::sm80::forward"

    def body_violations(self) -> list[str]:
        """Why this body does not take the configuration."""
        return []

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return calc_total_flop(n_samples, n_heads, seq_len, self.B_r, self.B_c, self.d_head)

    def attn_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return calc_self_attn_flop(n_samples, n_heads, seq_len, self.d_head)

    # Derived sizes, as in forward_config.h.

    def n_threads(self) -> int:
        return self.n_warps * 32

    def rows_per_warp(self) -> int:
        return self.B_r // self.n_warps

    def smem_bytes(self) -> int:
        """One Q block, one K block, one V block of 16-bit elements; O reuses Q's memory."""
        return (self.B_r + 2 * self.B_c) * self.d_head * 2

    def min_blocks_per_sm(self) -> int:
        return 2 if self.n_warps <= 4 else 1

    def _flags(self, names: tuple[tuple[str, str], ...]) -> list[str]:
        return [word for field, word in names if getattr(self, field)]

    def _load_tiles(self) -> str:
        tiles = (self.Q_mma_load_K_tiles, self.K_mma_load_K_tiles, self.V_mma_load_K_tiles)
        return "_".join(map(str, tiles))


def _check_field(name: str, annotation: str, value: object) -> None:
    expected = {"DType": DType, "int": int, "bool": bool}[annotation]
    if type(value) is not expected:
        got = type(value).__name__
        raise ValueError(f"{name} must be of type {annotation}, got {value!r} ({got})")
    if expected is int:
        lowest = 0 if name.endswith("_K_tiles") else 1
        if not lowest <= value <= MAX_FIELD_VALUE:  # type: ignore[operator]
            raise ValueError(f"{name} must be in {lowest}..{MAX_FIELD_VALUE}, got {value}")


def _cpp_value(value: DType | int | bool) -> str:
    if isinstance(value, DType):
        return value.to_cpp_str()
    return str(value).lower()
