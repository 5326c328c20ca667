"""A small set of configurations in which every pair of field values occurs that can occur.

The named sets vary a few fields each: none of them copies through registers, loads four k-tiles at
a time, or has more keys than queries in a block. The covering set does all of it in a few dozen
kernels, so that what any two switches do to each other is built, emulated and run.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

from ...base.dtypes import DType
from .config import FlashForwardKernelConfig
from .constraints import ALLOWED_VALUES, violations

LOAD_TILES = (0, 1, 2, 4)
SWITCH = (False, True)

Pair = tuple[str, object, str, object]


def field_values() -> dict[str, tuple[object, ...]]:
    """The values that the covering set draws from, by field."""
    values: dict[str, tuple[object, ...]] = {}
    for field in fields(FlashForwardKernelConfig):
        if field.name == "dtype":
            values[field.name] = tuple(DType)
        elif field.name.endswith("_mma_load_K_tiles"):
            values[field.name] = LOAD_TILES
        else:
            values[field.name] = ALLOWED_VALUES.get(field.name, SWITCH)
    return values


def pairs_of(config: FlashForwardKernelConfig) -> frozenset[Pair]:
    """Every (field, value, other field, other value) of a configuration."""
    items = [(field.name, getattr(config, field.name)) for field in fields(config)]
    return frozenset(
        (a, a_value, b, b_value) for (a, a_value), (b, b_value) in itertools.combinations(items, 2)
    )


@cache
def get_covering_kernel_configs() -> tuple[FlashForwardKernelConfig, ...]:
    """The set, sorted; the same on every machine. Greedy: of a few hundred candidates, each made to
    contain a pair that is still missing, the one that covers most."""
    chance = random.Random(0)  # noqa: S311  reproducible choice, nothing secret
    missing = possible_pairs()
    chosen = []
    while missing:
        wanted = min(missing, key=repr)
        candidates = [_draw(chance, wanted) for _ in range(100)]
        best = max((c for c in candidates if c), key=lambda c: len(pairs_of(c) & missing))
        chosen.append(best)
        missing -= pairs_of(best)
    return tuple(sorted(chosen))


def possible_pairs() -> set[Pair]:
    """All pairs of values but those that no buildable configuration has."""
    values = field_values()
    pairs: set[Pair] = set()
    for a, b in itertools.combinations(values, 2):
        pairs.update((a, x, b, y) for x in values[a] for y in values[b])
    return {pair for pair in pairs if next(_completions(pair), None) is not None}


def _completions(pair: Pair) -> Iterator[FlashForwardKernelConfig]:
    """Buildable configurations with this pair, in a fixed order; only fields that constraints look
    at are varied."""
    fixed = {pair[0]: pair[1], pair[2]: pair[3]}
    values = field_values()
    varied = [n for n in ("d_head", "B_r", "B_c", "n_warps") if n not in fixed]
    for combination in itertools.product(*(values[name] for name in varied)):
        chosen = {name: options[0] for name, options in values.items()}
        chosen |= dict(zip(varied, combination, strict=True)) | fixed
        config = FlashForwardKernelConfig(**chosen)  # type: ignore[arg-type]
        if not violations(config):
            yield config


def _draw(chance: random.Random, pair: Pair) -> FlashForwardKernelConfig | None:
    """A random buildable configuration with this pair; None if 50 tries found none."""
    values = field_values()
    for _ in range(50):
        chosen = {name: chance.choice(options) for name, options in values.items()}
        chosen |= {pair[0]: pair[1], pair[2]: pair[3]}
        config = FlashForwardKernelConfig(**chosen)  # type: ignore[arg-type]
        if not violations(config):
            return config
    return None
