"""The earlier name of flash_lab.profiling.nvtx."""

from flash_lab.profiling.nvtx import annotate, annotate_modules

__all__ = ["annotate", "annotate_modules"]
