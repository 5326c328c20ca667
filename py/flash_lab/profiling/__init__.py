"""The profiling kit: how long a call takes and where its time goes (`benchmark`, `profile` with a
flame graph), ranges that profilers show (`nvtx`), what a launch loses in its last wave (`waves`),
and what limits a kernel, from ncu's counters (`bottleneck`). docs/profiling.md shows each.
"""

from .calls import StackFilesError, benchmark, profile

__all__ = ["StackFilesError", "benchmark", "profile"]
