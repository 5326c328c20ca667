"""Bugs in what serves, for tests/bugs.py."""

from __future__ import annotations

from . import ampere, gradients, hopper, hopper_gradients, hopper_mla, mla

BUGS = (
    *ampere.BUGS, *hopper.BUGS, *gradients.BUGS, *hopper_gradients.BUGS, *mla.BUGS,
    *hopper_mla.BUGS,
)  # fmt: skip
