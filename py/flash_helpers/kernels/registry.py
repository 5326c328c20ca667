"""The families of kernels, and what is asked of the family of a configuration.

The one place that names them all: another family is a line in FAMILIES. One that lives elsewhere
is registered while it is used (`registered`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .architecture import parse_arch
from .contract import KernelConfig
from .family import Capability, Family
from .sm80_bwd.family import FAMILY as SM80_BACKWARD
from .sm80_bwd_fused.family import FAMILY as SM80_FUSED_BACKWARD
from .sm80_bwd_serve.family import FAMILY as SM80_SERVE_BACKWARD
from .sm80_fwd.family import FAMILY as SM80_FORWARD
from .sm80_serve.family import FAMILY as SM80_SERVE
from .sm80_serve_mla.family import FAMILY as SM80_SERVE_MLA
from .sm90_bwd.family import FAMILY as SM90_BACKWARD
from .sm90_bwd_cluster.family import FAMILY as SM90_CLUSTER_BACKWARD
from .sm90_bwd_fused.family import FAMILY as SM90_FUSED_BACKWARD
from .sm90_bwd_fused_serve.family import FAMILY as SM90_FUSED_SERVE_BACKWARD
from .sm90_fwd.family import FAMILY as SM90_FORWARD
from .sm90_serve.family import FAMILY as SM90_SERVE
from .sm90_serve_mla.family import FAMILY as SM90_SERVE_MLA

FAMILIES: tuple[Family, ...] = (
    SM80_FORWARD, SM90_FORWARD, SM80_BACKWARD, SM80_FUSED_BACKWARD, SM90_BACKWARD,
    SM90_FUSED_BACKWARD, SM90_CLUSTER_BACKWARD, SM80_SERVE, SM90_SERVE, SM80_SERVE_MLA,
    SM90_SERVE_MLA, SM80_SERVE_BACKWARD, SM90_FUSED_SERVE_BACKWARD,
)  # fmt: skip

_registered = {family.NAME: family for family in FAMILIES}
_listeners: list[Callable[[], None]] = []


def families() -> tuple[Family, ...]:
    """All that are registered now, in the order in which messages and tables show them."""
    return tuple(_registered.values())


def family_of(config: KernelConfig) -> Family:
    return _registered[config.FAMILY]


def by_preference(
    capability: Capability | None, *, gradients: bool = False, serves: bool = False
) -> list[Family]:
    """Those of forward passes, those for gradients, those that serve, or those for the gradients of
    what is served, in the order in which they are asked to take a problem on a GPU of this
    capability, or (None) in the emulator."""
    kind = (gradients, serves)
    asked = [family for family in families() if kind == (family.GRADIENTS, family.SERVES)]
    return sorted(asked, key=lambda family: -family.preference(capability))


def violations(config: KernelConfig, arch: str | Capability | None = None) -> list[str]:
    """One sentence for each reason why `config` cannot be built (for `arch`, such as '8.0' or
    (8, 0), if given). An empty list: it can."""
    target = None if arch is None else parse_arch(arch)
    return family_of(config).violations(config, target)


@contextmanager
def registered(family: Family) -> Iterator[None]:
    """One more family, until the end of the `with` block. Raises ValueError if there is one of its
    name."""
    if family.NAME in _registered:
        raise ValueError(f"there is a family {family.NAME} already")
    _registered[family.NAME] = family
    _changed()
    try:
        yield
    finally:
        del _registered[family.NAME]
        _changed()


def on_change(forget: Callable[[], None]) -> None:
    """Has `forget` called whenever the families change."""
    _listeners.append(forget)


def _changed() -> None:
    for forget in _listeners:
        forget()
