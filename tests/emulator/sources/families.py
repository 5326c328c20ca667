"""Whose sources bugs are planted in."""

from __future__ import annotations

from collections.abc import Callable

from .checks import Stage, sm80_stages, sm90_stages
from .serve_checks import sm80_bwd_serve_stages, sm80_serve_stages, sm90_serve_stages

DENSE: dict[str, Callable[[], list[Stage]]] = {"sm80": sm80_stages, "sm90": sm90_stages}
SERVING: dict[str, Callable[[], list[Stage]]] = {
    "sm80_serve": sm80_serve_stages,
    "sm80_bwd_serve": sm80_bwd_serve_stages,
    "sm90_serve": sm90_serve_stages,
}
FAMILIES = DENSE | SERVING
# Of headers that all use, those are left to the other families that these read.
AFTER = {
    "sm80_serve": ("sm80",),
    "sm80_bwd_serve": ("sm80", "sm80_serve"),
    "sm90_serve": ("sm80", "sm90", "sm80_serve"),
}
