"""Builds `flash_attention._C`: find the tools, stage the sources, compile, check, publish.

`setup.py` and `python -m flash_helpers.build` are its two front ends.
"""
