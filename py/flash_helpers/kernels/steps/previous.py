"""The sixteen steps of previous_kernels/: what they are, and the configurations that name them.

Steps 1 to 15 have bodies of their own, so their kernels are `PreviousKernelConfig` values: a
configuration and the step whose body takes it. Step 16 is the live kernel.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ...base.paths import csrc_dir
from ...base.safe_read import parse_toml
from ..sm80_fwd.config import FlashForwardKernelConfig

STEPS_FILE = "steps.toml"
BODY_FILE = "forward.cuh"
_LIVE_PREFIX = "flash_fwd_sm80_"
_FREE_FIELDS = ("dtype", "d_head")  # a body takes any; everything else is the step's
_LAST_WITH_A_BODY = 15


@dataclass(frozen=True, order=True)
class PreviousKernelConfig(FlashForwardKernelConfig):
    """A kernel of an earlier step; `step` (1 to 15) says which body takes the configuration."""

    step: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.step <= _LAST_WITH_A_BODY:
            raise ValueError(f"step must be in 1..{_LAST_WITH_A_BODY}, got {self.step}")

    def short_form(self, include_d_head: bool = True, include_tup: bool = True) -> str:
        """The configuration's, followed by the step: `...+opt_softmax@step08`."""
        return super().short_form(include_d_head, include_tup) + f"@step{self.step:02d}"

    def kernel_name(self) -> str:
        options = super().kernel_name().removeprefix(_LIVE_PREFIX)
        return f"flash_fwd_step{self.step:02d}_{options}"

    def symbol(self, general: bool) -> str:
        if general:
            raise ValueError(f"{self} takes whole blocks without a mask, and nothing else")
        return self.kernel_name()

    def to_cpp_struct(self) -> str:
        """The body's configuration: the step is not in the struct, but says which body."""
        return FlashForwardKernelConfig(**_plain_values(self)).to_cpp_struct()

    def header(self) -> str:
        return f"previous_kernels/{step(self.step).source}/{BODY_FILE}"

    def body(self) -> str:
        return f"flash::previous::{namespace_of(step(self.step).source)}::forward"

    def body_violations(self) -> list[str]:
        """A body is written for its step's configurations, and refuses others at compile time."""
        own = step(self.step).plain
        wrong = [
            f"{field.name} = {getattr(own, field.name)}, not {getattr(self, field.name)}"
            for field in fields(FlashForwardKernelConfig)
            if field.name not in _FREE_FIELDS
            and getattr(own, field.name) != getattr(self, field.name)
        ]
        return [f"Step {self.step} is a kernel with {', '.join(wrong)}."] if wrong else []


@dataclass(frozen=True)
class Step:
    """One entry of steps.toml."""

    number: int
    title: str
    idea: str
    source: str  # folder of the body; "": the live kernel
    plain: FlashForwardKernelConfig
    sass: str
    problem: str
    change: str
    why: str
    fa2: dict[str, float]  # GPU -> percent of FlashAttention-2, in the predecessor
    shows: tuple[dict[str, Any], ...]

    @property
    def config(self) -> FlashForwardKernelConfig:
        """What the tools run."""
        if not self.source:
            return self.plain
        values = {f.name: getattr(self.plain, f.name) for f in fields(self.plain)}
        return PreviousKernelConfig(**values, step=self.number)

    @property
    def is_configuration(self) -> bool:
        """Whether it shares the body of the step before, and differs by options alone."""
        return self.number > 1 and self.source == step(self.number - 1).source


def previous_dir() -> Path:
    """The folder with the steps, beside csrc/ in a source tree and in an installed package."""
    return csrc_dir().parent / "previous_kernels"


@cache
def load_steps() -> tuple[Step, ...]:
    """The steps in order. ValueError if steps.toml says what it should not."""
    path = previous_dir() / STEPS_FILE
    try:
        data = parse_toml(path.read_text())
        steps = tuple(_read_step(entry) for entry in data.pop("step"))
        if data:
            raise ValueError(f"unknown {', '.join(sorted(data))}")
        if [found.number for found in steps] != list(range(1, len(steps) + 1)):
            raise ValueError("the numbers must be 1, 2, 3, ...")
    except (ValueError, KeyError, TypeError) as error:  # TOMLDecodeError is a ValueError
        raise ValueError(f"{path}: {error}") from error
    return steps


def _read_step(entry: dict[str, Any]) -> Step:
    from ..names import parse_sm80_name  # late: it imports this module

    known = {field.name for field in fields(Step)} - {"plain"} | {"config"}
    unknown = set(entry) - known
    if unknown:
        raise ValueError(f"step {entry.get('number')}: unknown {', '.join(sorted(unknown))}")
    return Step(
        number=entry["number"],
        title=entry["title"],
        idea=entry["idea"],
        source=entry.get("source", ""),
        plain=parse_sm80_name(entry["config"]),
        sass=entry["sass"],
        problem=entry["problem"],
        change=entry["change"],
        why=entry["why"],
        fa2=entry["fa2"],
        shows=tuple(entry.get("shows", ())),
    )


def step(number: int) -> Step:
    steps = load_steps()
    if not 1 <= number <= len(steps):
        raise ValueError(f"there is no step {number}: expected 1 to {len(steps)}")
    return steps[number - 1]


def namespace_of(source: str) -> str:
    """`08_fewer_moves` -> `step08`: each body has a namespace of its own."""
    return f"step{source[:2]}"


def get_previous_kernel_configs() -> list[FlashForwardKernelConfig]:
    """The kernels of all steps in order, the live one last."""
    return [found.config for found in load_steps()]


def select_versions(text: str) -> list[FlashForwardKernelConfig]:
    """The kernels that `--version` names: `all`, or step numbers with commas."""
    steps = load_steps()
    if text == "all":
        return get_previous_kernel_configs()
    items = text.split(",")
    if not all(re.fullmatch("[1-9][0-9]?", item) and int(item) <= len(steps) for item in items):
        raise ValueError(f"{text!r} is not valid: expected 1 to {len(steps)}, 3,7,8 or all")
    return [step(number).config for number in dict.fromkeys(map(int, items))]


_SYMBOL = re.compile(r"flash_fwd_step([0-9]{2})_(\w+)", re.ASCII)
_SHORT = re.compile(r"(\| *[^|\r\n]*?|[^|\r\n]*?)@step([0-9]{2})( *\|[^\r\n]*)?")


def split_name(text: str) -> tuple[str, int] | None:
    """A spelling of a previous kernel as (the spelling of its configuration, step); None if it is
    something else."""
    if match := _SYMBOL.fullmatch(text):
        return _LIVE_PREFIX + match[2], int(match[1])
    if match := _SHORT.fullmatch(text):
        return match[1] + (match[3] or ""), int(match[2])
    return None


def at_step(config: FlashForwardKernelConfig, number: int) -> PreviousKernelConfig:
    """`config` for the body of a step. ValueError if there is no such step."""
    return PreviousKernelConfig(**_plain_values(config), step=number)


def config_from_values(values: dict[str, Any]) -> FlashForwardKernelConfig:
    """The inverse of dataclasses.asdict."""
    kind = PreviousKernelConfig if "step" in values else FlashForwardKernelConfig
    return kind(**values)


def _plain_values(config: FlashForwardKernelConfig) -> dict[str, Any]:
    names = {field.name for field in fields(FlashForwardKernelConfig)}
    return {name: value for name, value in dataclasses.asdict(config).items() if name in names}
