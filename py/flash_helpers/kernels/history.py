"""The steps of previous_kernels/, the earlier forms of a kernel: by number."""

import re

from .contract import KernelConfig
from .family import Step
from .registry import families


def load_steps() -> tuple[Step, ...]:
    """The steps in order. Raises ValueError if steps.toml says what it should not."""
    return tuple(step for family in families() for step in family.history())


def step(number: int) -> Step:
    steps = load_steps()
    if not 1 <= number <= len(steps):
        raise ValueError(f"there is no step {number}: expected 1 to {len(steps)}")
    return steps[number - 1]


def select_versions(text: str) -> list[KernelConfig]:
    """The kernels that `--version` names: `all`, or step numbers with commas."""
    steps = load_steps()
    if text == "all":
        return [found.config for found in steps]
    items = text.split(",")
    if not all(re.fullmatch("[1-9][0-9]?", item) and int(item) <= len(steps) for item in items):
        raise ValueError(f"{text!r} is not valid: expected 1 to {len(steps)}, 3,7,8 or all")
    return [step(number).config for number in dict.fromkeys(map(int, items))]
