"""What `make mutants` prints in the end. It fails if it comes to anything else, and a test asks
that the READMEs quote it: mend both when a kernel, or a kind of mutant, is added."""

from __future__ import annotations

from typing import NamedTuple


class Total(NamedTuple):
    planted: int
    found: int
    redundant: int

    def __str__(self) -> str:
        return f"planted {self.planted} found {self.found} redundant {self.redundant}"


SM80 = Total(957, 957, 0)
SM90 = Total(418, 367, 51)
SM90_BACKWARD = Total(243, 223, 20)
SM90_FUSED = Total(913, 819, 94)  # the fused backward kernels
SM80_FUSED = Total(45, 43, 2)  # the Ampere family's
# The kernels that serve, by their families.
SERVE = {
    "sm80_serve": Total(376, 352, 24),
    "sm80_bwd_serve": Total(32, 32, 0),
    "sm80_serve_mla": Total(159, 120, 39),
    "sm90_serve": Total(774, 658, 116),
    "sm90_bwd_fused_serve": Total(173, 141, 32),
    "sm90_serve_mla": Total(69, 60, 9),
}
GLUON, GLUON_TRITON = Total(352, 274, 78), (3, 6)  # of what this release compiles
SOURCES: Total | None = Total(685, 519, 166)  # bugs in csrc/include/flash

README = "py/flash_helpers/emulator/README.md"
SM90_README = "py/flash_helpers/emulator/sm90/README.md"
SERVE_PAGE = "docs/kernels/06-serving.md"
QUOTED = {
    README: {SM80, SM80_FUSED, *([SOURCES] if SOURCES else [])},
    SM90_README: {SM90, SM90_BACKWARD, SM90_FUSED, GLUON},
    SERVE_PAGE: {*SERVE.values()},
}
