"""Which kernels a tool runs: what the user named, less what does not fit the problem."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig, whole_blocks_violation
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.registry import violations
from flash_helpers.kernels.sets import get_kernel_configs, valid_words
from flash_helpers.kernels.variants import has_kernel_for

_SHORTEST_NAME = 20


@dataclass(frozen=True)
class Skipped:
    """A selected kernel that the problem rules out, and why."""

    config: KernelConfig
    reason: str


def select_kernels(arguments: Sequence[str] | None) -> list[KernelConfig]:
    """The kernels that `--kernels` names, in that order and each once; None reads KERNELS.

    An argument is a list of items between `;` (short forms contain commas), and an item is a
    selection word or the name of a kernel in any spelling.
    """
    if arguments is None:
        return get_kernel_configs()
    items = [item.strip() for argument in arguments for item in argument.split(";")]
    return list(dict.fromkeys(config for item in items for config in _configs_of(item)))


def _configs_of(item: str) -> list[KernelConfig]:
    if not item:
        raise ValueError(f"--kernels has an empty item: expected {_expected()}")
    if item in valid_words():
        return get_kernel_configs(item)
    try:
        config = parse_kernel_name_into_config(item)
    except ValueError as error:
        if len(item) >= _SHORTEST_NAME:
            raise ValueError(f"--kernels: {error}") from None
        # A misspelt word: the explanation of names would bury the point.
        hint = " (seq_len and d_head go before --kernels)" if item.isdigit() else ""
        raise ValueError(f"--kernels {item!r} is not valid: expected {_expected()}{hint}") from None
    reasons = violations(config)
    if reasons:
        raise ValueError(f"{config} cannot be built: {' '.join(reasons)}")
    return [config]


def _expected() -> str:
    return f"one of {', '.join(valid_words())} or the name of a kernel"


def partition(
    configs: Iterable[KernelConfig],
    seq_len: int,
    d_head: int | None = None,
    dtype: DType | None = None,
    causal: bool = False,
    emulated: bool = False,
) -> tuple[list[KernelConfig], list[Skipped]]:
    """(to run, not to run): None as d_head or dtype admits every value. What a build has decides,
    or what the emulator has."""
    why = [(c, _why_skipped(c, seq_len, d_head, dtype, causal, emulated)) for c in configs]
    skipped = [Skipped(config, reason) for config, reason in why if reason]
    return [config for config, reason in why if not reason], skipped


def _why_skipped(
    config: KernelConfig, seq_len: int, d_head: int | None, dtype: DType | None, causal: bool,
    emulated: bool,
) -> str | None:  # fmt: skip
    if config.GRADIENTS:
        return "it computes gradients, and this tool runs forward passes"
    if config.SERVES:
        return "it serves caches and lengths, and this tool runs forward passes"
    if dtype is not None and config.dtype is not dtype:
        return f"its dtype is not {dtype.name}"
    if d_head is not None and config.d_head != d_head:
        return f"its d_head {config.d_head} is not {d_head}"
    if has_kernel_for(config, seq_len, seq_len, causal, emulated=emulated):
        return None
    who = "no earlier step" if config.kept_for_study() else "no build"
    if causal:
        return f"{who} has a kernel of it with the causal mask"
    return (
        f"{whole_blocks_violation(config, seq_len, seq_len)}, and {who} has a general kernel of it"
    )
