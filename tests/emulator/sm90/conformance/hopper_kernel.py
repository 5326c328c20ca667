"""Micro-kernels for sm_90a: entries that also get tensor maps."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...conformance.micro_kernel import MicroKernels, entry_text

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class MapSpec:
    """A tensor map over the inputs or the output, from byte `start` of it (a multiple of 16)."""

    of_output: bool
    start: int
    element_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    @property
    def box_bytes(self) -> int:
        n_bytes = self.element_bytes
        for size in self.box:
            n_bytes *= size
        return n_bytes

    @property
    def shared_bytes(self) -> int:
        """With the gaps behind rows that are shorter than those that are swizzled."""
        row_bytes = self.box[0] * self.element_bytes
        return self.box_bytes // row_bytes * max(row_bytes, self.swizzle)


@dataclass
class HopperKernels(MicroKernels):
    """Tensor maps, if any, follow the pointers as one parameter, then `arguments`."""

    maps: list[MapSpec] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.preamble += repr(self.maps)  # whose change outdates the answers


def hopper_entry(
    name: str, body: str, n_maps: int = 0, block: int = 128, parameter: str = ""
) -> str:
    """`parameter`: the declaration of what `arguments` holds."""
    maps = f", .param .align 64 .b8 {name}_maps[{128 * n_maps}]" if n_maps else ""
    text = entry_text(name, body, maps + (f", {parameter}" if parameter else ""))
    return text.replace("\n{", f"\n.reqntid {block}, 1, 1\n{{", 1)
