"""Configurations, code generation, build helpers, emulator and references of flash_attention.

Importing any module of this package imports neither torch nor flash_attention:
tests/docs/test_floors.py tries each without them.
"""
