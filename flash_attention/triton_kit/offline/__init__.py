"""Compiles Triton and Gluon kernels for a GPU that need not be there."""
