"""The named sets of configurations, and the strict selection word (`KERNELS`)."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

from .contract import KernelConfig, config_order
from .registry import families, on_change

KERNELS_VARIABLE = "KERNELS"
DEFAULT_KERNELS = "all"


def _words() -> dict[str, Callable[[], Sequence[KernelConfig]]]:
    parts: dict[str, list[Callable[[], Sequence[KernelConfig]]]] = {}
    for family in families():
        for word, configs in family.sets().items():
            parts.setdefault(word, []).append(configs)
    words = [(word, partial(_called, found)) for word, found in parts.items()]
    everything = partial(_called, [family.everything for family in families()])
    words.insert(2, ("all", everything))  # where messages have always shown it
    return dict(words) | {"half": lambda: _of_one_dtype(everything())}


def _of_one_dtype(configs: Iterable[KernelConfig]) -> list[KernelConfig]:
    """Of those that differ in the data type alone one, in turn."""
    alike: dict[str, list[KernelConfig]] = {}
    for config in configs:
        name = config.kernel_name().replace(config.dtype.name.lower(), "")
        alike.setdefault(name, []).append(config)
    return _union([found[i % len(found)]] for i, found in enumerate(alike.values()))


def _called(parts: list[Callable[[], Sequence[KernelConfig]]]) -> Sequence[KernelConfig]:
    """Of the families that share a word. One family's keep their order."""
    return parts[0]() if len(parts) == 1 else _union(part() for part in parts)


def _union(parts: Iterable[Iterable[KernelConfig]]) -> list[KernelConfig]:
    return sorted({config for part in parts for config in part}, key=config_order)


def valid_words() -> list[str]:
    """Everything that `get_kernel_configs` accepts."""
    return [*_words()]


def get_kernel_configs(key: str = "") -> list[KernelConfig]:
    """The configurations that a selection word names. An empty `key` reads the environment's
    KERNELS; where that is not set either, the word is `all`. Raises ValueError.
    """
    source = "the key"
    if not key:
        key, source = os.environ.get(KERNELS_VARIABLE, DEFAULT_KERNELS), KERNELS_VARIABLE
    words = _words()
    if key in words:
        return list(words[key]())
    like_blocks = re.fullmatch("[1-9][0-9]{0,4},[1-9][0-9]{0,4}", key)
    problem = "selects no kernel" if like_blocks else "is not a selection of kernels"
    raise ValueError(
        f"{source} {key[:200]!r} {problem}: expected exactly one of {', '.join(words)}"
    )


def get_kernels_to_build(*keys: str) -> list[KernelConfig]:
    """The sorted union of what was asked for (without arguments: of what KERNELS selects), so
    that every configuration a tool can name at that setting is in the extension."""
    return _union(get_kernel_configs(key) for key in keys or ("",))


@cache
def known_configs() -> tuple[KernelConfig, ...]:
    """Every configuration of any set, sorted: what names are compared with in messages."""
    return tuple(_union(get_kernel_configs(word) for word in _words()))


on_change(known_configs.cache_clear)
