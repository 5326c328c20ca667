"""Configurations, code generation, build helpers, emulator and references of flash_attention.

Importing any module of this package imports neither torch nor flash_attention (tested).
"""
