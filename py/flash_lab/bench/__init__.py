"""Measuring kernels: timing, statistics, clocks and where a number came from."""
