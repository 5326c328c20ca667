"""Builds `flash_attention._C`: find the tools, decide what changed, run CMake and ninja, check, publish.

`setup.py` and `python -m flash_helpers.build` are its two front ends.
"""
