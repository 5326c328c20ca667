"""Reading a configuration of any family back from its spellings."""

import difflib

from .contract import KernelConfig, Variant
from .registry import families
from .sets import known_configs
from .spelling import MAX_TEXT


def parse_kernel_name_into_config(text: str) -> KernelConfig:
    """The configuration that `text` names, in any of its family's spellings. Raises ValueError."""
    if isinstance(text, str) and len(text) <= MAX_TEXT:
        for family in families():
            config = family.parse(text)
            if config is not None:
                return config
    raise ValueError(_explain(text))


def parse_symbol(text: str) -> tuple[KernelConfig, Variant]:
    """The configuration of a kernel's symbol, and which of its kernels it is. Raises ValueError."""
    if len(text) <= MAX_TEXT:
        for family in families():
            found = family.parse_symbol(text)
            if found is not None:
                return found
    raise ValueError(_explain(text))


def config_of_kernel(name: str) -> KernelConfig | None:
    """The configuration of a kernel that a profiler names, by symbol or demangled; None: it is not
    ours."""
    for parse in (lambda text: parse_symbol(text)[0], parse_kernel_name_into_config):
        try:
            return parse(name)
        except ValueError:
            continue
    return None


def expected_spellings() -> str:
    """Every family's, as the end of a sentence."""
    first, *others = families()
    more = (f"; or, of the {family.TITLE} family, {family.SPELLINGS}" for family in others)
    return f"expected {first.SPELLINGS}{''.join(more)}"


def _explain(text: object) -> str:
    shown = repr(text) if len(repr(text)) <= 200 else repr(text)[:200] + "..."
    message = f"{shown} does not name a kernel configuration: {expected_spellings()}"
    nearest = nearest_names(text, limit=1) if isinstance(text, str) else []
    return message + (f"; the nearest valid name is {nearest[0]!r}" if nearest else "")


def nearest_names(text: str, limit: int = 3) -> list[str]:
    """Known spellings that look most like `text`."""
    is_symbol = text.strip().startswith("flash_")
    configs = known_configs()
    names = [c.kernel_name() if is_symbol else c.short_form() for c in configs]
    return difflib.get_close_matches(text.strip()[:200], names, n=limit, cutoff=0.5)
