"""The modes of tools/benchmark/flash-attention-WS-hopper.py."""

from __future__ import annotations

from collections.abc import Sequence

from ..bench import arguments as args
from . import analysis, checking, measuring, ncu_mode, nvtx_mode, scripts
from .options import ANALYSIS, BENCHMARK, CREATE, NCU, NVTX, parse


def main(argv: Sequence[str] | None = None, backend: str = measuring.BACKEND) -> int:
    """`backend` is where kernels run; a test puts its own there."""
    options = parse(argv)
    try:
        if options.mode == CREATE:
            return scripts.create(options)
        if options.mode == NVTX:
            return nvtx_mode.run(options)
        if options.mode == NCU:
            return ncu_mode.run(options)
        is_real = backend == measuring.BACKEND and not options.rows
        if is_real and not checking.has_gpu(options.mode):
            return args.EXIT_NO_DATA
        measure = {BENCHMARK: measuring.benchmark, ANALYSIS: analysis.analyse}[options.mode]
        return measure(options, backend)
    except KeyboardInterrupt:
        return args.EXIT_INTERRUPTED
