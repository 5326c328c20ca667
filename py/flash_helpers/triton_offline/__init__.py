"""Compiles the project's Triton and Gluon kernels for a GPU that need not be there."""

from .kernels import compile_gluon, compile_tl
from .resources import Compiled

__all__ = ["Compiled", "compile_gluon", "compile_tl"]
