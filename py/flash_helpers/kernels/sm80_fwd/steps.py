"""The sixteen steps of previous_kernels/, and the configurations that name their kernels.

Steps 1 to 15 have bodies of their own, so their kernels are `PreviousKernelConfig` values, which
have a configuration and the step whose body takes it. Step 16 is the live kernel.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

from ...base.dtypes import DType
from ...base.paths import previous_dir
from ...base.safe_read import parse_toml
from ..contract import KernelConfig, Variant
from ..family import Step
from .config import FlashForwardKernelConfig
from .names import parse_known, parse_short_form, parse_symbol

STEPS_FILE = "steps.toml"
BODY_FILE = "forward.cuh"
_LIVE_PREFIX = "flash_fwd_sm80_"
_FREE_FIELDS = ("dtype", "d_head")  # a body takes any; everything else is the step's
_LAST_WITH_A_BODY = 15
_SYMBOL = re.compile(r"flash_fwd_step([0-9]{2})_(\w+)", re.ASCII)
_SHORT = re.compile(r"(\| *[^|\r\n]*?|[^|\r\n]*?)@step([0-9]{2})( *\|[^\r\n]*)?")


@dataclass(frozen=True, order=True)
class PreviousKernelConfig(KernelConfig):
    """A kernel of step 1 to 15: whole blocks without a mask."""

    FAMILY: ClassVar[str] = FlashForwardKernelConfig.FAMILY
    ARGUMENTS: ClassVar[str] = FlashForwardKernelConfig.ARGUMENTS
    PTX_ARCHITECTURE: ClassVar[str] = FlashForwardKernelConfig.PTX_ARCHITECTURE

    plain: FlashForwardKernelConfig
    step: int

    def __post_init__(self) -> None:
        if type(self.plain) is not FlashForwardKernelConfig:
            raise ValueError(f"plain must be a FlashForwardKernelConfig, got {self.plain!r}")
        if type(self.step) is not int or not 1 <= self.step <= _LAST_WITH_A_BODY:
            raise ValueError(f"step must be in 1..{_LAST_WITH_A_BODY}, got {self.step}")

    @property
    def dtype(self) -> DType:
        return self.plain.dtype

    @property
    def d_head(self) -> int:
        return self.plain.d_head

    def values(self) -> dict[str, Any]:
        return {**self.plain.values(), "step": self.step}

    def order_key(self) -> tuple[object, ...]:
        """After the live kernels, step by step."""
        return (self.FAMILY, self.step, *dataclasses.astuple(self.plain))

    def short_form(self, include_d_head: bool = True, include_tup: bool = True) -> str:
        """The configuration's, followed by the step: `...+opt_softmax@step08`."""
        return self.plain.short_form(include_d_head, include_tup) + f"@step{self.step:02d}"

    def kernel_name(self) -> str:
        options = self.plain.kernel_name().removeprefix(_LIVE_PREFIX)
        return f"flash_fwd_step{self.step:02d}_{options}"

    def symbol(self, variant: Variant) -> str:
        if variant is not Variant.WHOLE:
            raise ValueError(f"{self} takes whole blocks without a mask, and nothing else")
        return self.kernel_name()

    def to_cpp_struct(self) -> str:
        """The body's configuration: the step is not in the struct, but says which body."""
        return self.plain.to_cpp_struct()

    def cpp_type(self) -> str:
        return self.plain.cpp_type()

    def to_cpp_bytes(self) -> bytes:
        return self.plain.to_cpp_bytes()

    def header(self) -> str:
        return f"previous_kernels/{_body_of(self.step)[0]}/{BODY_FILE}"

    def body(self) -> str:
        return f"flash::previous::step{_body_of(self.step)[0][:2]}::forward"

    def variants(self) -> tuple[Variant, ...]:
        return (Variant.WHOLE,)

    def variant_for(self, seqlen_q: int, seqlen_k: int, causal: bool) -> Variant:
        return self.plain.variant_for(seqlen_q, seqlen_k, causal)

    def kept_for_study(self) -> str:
        return f"It is step {self.step} of previous_kernels/."

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return self.plain.total_flop(n_samples, n_heads, seq_len)

    def n_threads(self) -> int:
        return self.plain.n_threads()

    def smem_bytes(self) -> int:
        return self.plain.smem_bytes()

    def blocks(self) -> tuple[int, int]:
        return self.plain.blocks()


def body_violations(config: PreviousKernelConfig) -> list[str]:
    """A body is written for its step's configurations, and refuses others at compile time."""
    own = _body_of(config.step)[1]
    wrong = [
        f"{field.name} = {getattr(own, field.name)}, not {getattr(config.plain, field.name)}"
        for field in fields(FlashForwardKernelConfig)
        if field.name not in _FREE_FIELDS
        and getattr(own, field.name) != getattr(config.plain, field.name)
    ]
    return [f"Step {config.step} is a kernel with {', '.join(wrong)}."] if wrong else []


def get_previous_kernel_configs() -> list[KernelConfig]:
    """The kernels of all steps in order, the live one last."""
    return [found.config for found in load_steps()]


@cache
def load_steps() -> tuple[Step, ...]:
    """The steps in order. ValueError if steps.toml says what it should not."""
    path = previous_dir() / STEPS_FILE
    try:
        data = parse_toml(path.read_text())
        entries = data.pop("step")
        befores = [{}, *entries]
        steps = tuple(_read_step(*pair) for pair in zip(entries, befores, strict=False))
        if data:
            raise ValueError(f"unknown {', '.join(sorted(data))}")
        if [found.number for found in steps] != list(range(1, len(steps) + 1)):
            raise ValueError("the numbers must be 1, 2, 3, ...")
    except (ValueError, KeyError, TypeError) as error:  # TOMLDecodeError is a ValueError
        raise ValueError(f"{path}: {error}") from error
    return steps


def _read_step(entry: dict[str, Any], before: dict[str, Any]) -> Step:
    unknown = set(entry) - ({field.name for field in fields(Step)} - {"is_configuration"})
    if unknown:
        raise ValueError(f"step {entry.get('number')}: unknown {', '.join(sorted(unknown))}")
    source = entry.get("source", "")
    plain = parse_known(entry["config"])
    read: dict[str, Any] = {
        "source": source,
        "is_configuration": bool(before) and source == before.get("source", ""),
        "config": PreviousKernelConfig(plain, entry["number"]) if source else plain,
        "shows": tuple(entry.get("shows", ())),
    }
    return Step(**{**entry, **read})


def _body_of(number: int) -> tuple[str, FlashForwardKernelConfig]:
    """The folder of a step's body, and the configuration that it is written for."""
    found = load_steps()[number - 1]
    assert isinstance(found.config, PreviousKernelConfig)
    return found.source, found.config.plain


def parse_step_symbol(text: str) -> PreviousKernelConfig | None:
    """The configuration of a step's kernel from its symbol; None for anything else."""
    match = _SYMBOL.fullmatch(text)
    return _at_step(parse_symbol(_LIVE_PREFIX + match[2]), match[1]) if match else None


def parse_step_short_form(text: str) -> PreviousKernelConfig | None:
    """The same from its short form, alone or as the first cell of a table row."""
    match = _SHORT.fullmatch(text)
    return _at_step(parse_short_form(match[1] + (match[3] or "")), match[2]) if match else None


def _at_step(config: FlashForwardKernelConfig | None, number: str) -> PreviousKernelConfig | None:
    try:
        return PreviousKernelConfig(config, int(number)) if config else None
    except ValueError:
        return None  # there is no such step
