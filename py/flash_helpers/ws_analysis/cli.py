"""The modes of tools/benchmark/flash-attention-WS-hopper.py."""

from __future__ import annotations

from collections.abc import Sequence

from ..bench import arguments as args
from . import analysis, measuring, ncu_mode, nvtx_mode, scripts
from .options import ANALYSIS, BENCHMARK, CREATE, NVTX, parse


def main(argv: Sequence[str] | None = None, backend: str = measuring.BACKEND) -> int:
    """`backend` is where kernels run; a test puts its own there."""
    options = parse(argv)
    try:
        if options.mode == CREATE:
            return scripts.create(options)
        if options.mode == BENCHMARK:
            return measuring.benchmark(options, backend)
        if options.mode == ANALYSIS:
            return analysis.analyse(options, backend)
        return nvtx_mode.run(options) if options.mode == NVTX else ncu_mode.run(options)
    except KeyboardInterrupt:
        return args.EXIT_INTERRUPTED
