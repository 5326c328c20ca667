"""Bugs in what serves, for tests/bugs.py."""

from __future__ import annotations

from . import ampere, gradients, hopper

BUGS = (*ampere.BUGS, *hopper.BUGS, *gradients.BUGS)
