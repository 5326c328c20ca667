"""The modes of tools/benchmark/flash-attention-WS-hopper.py."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence

from flash_helpers.base.cache import cache_dir
from flash_helpers.base.lazy import torch
from flash_helpers.base.outputs import OutputError, check_outputs
from flash_helpers.base.tool import EXIT_NO_DATA, EXIT_USAGE, guarded

from . import analysis, checking, measuring, ncu_mode, nvtx_mode, scripts
from .options import ANALYSIS, BENCHMARK, CREATE, NCU, NVTX, parse
from .providers import TRITON, WS_PROVIDERS


def main(argv: Sequence[str] | None = None, backend: str = measuring.BACKEND) -> int:
    """`backend` is where kernels run; a test puts its own there."""
    options = parse(argv)
    try:
        if options.mode == CREATE:
            return scripts.create(options)
        trace = options.trace or (nvtx_mode.DEFAULT_TRACE if options.mode == NVTX else None)
        results = options.results if options.mode in (BENCHMARK, ANALYSIS) else None
        check_outputs({"--out": options.out, "--trace": trace}, {"--results": results})
        if backend == measuring.BACKEND:
            _check_cache(options)
        if options.mode == NVTX:
            return nvtx_mode.run(options)
        if options.mode == NCU:
            return ncu_mode.run(options)
        is_real = backend == measuring.BACKEND and not options.rows
        if is_real and not checking.has_gpu(options.mode):
            return EXIT_NO_DATA
        measure = {BENCHMARK: measuring.benchmark, ANALYSIS: analysis.analyse}[options.mode]
        return measure(options, backend)
    except OutputError as error:  # on standard output: the scripts keep that in a file
        print(f"error: {error}")
        return EXIT_USAGE


def _check_cache(options: argparse.Namespace) -> None:
    """The tuner's, before a sweep of which every tuned kernel would fail. Raises
    UnsafeCacheError."""
    kinds = {WS_PROVIDERS[name].family for name in options.provider if name in WS_PROVIDERS}
    measures = TRITON in kinds and not (options.rows or options.report)
    if measures and torch.cuda.is_available():  # else nothing is tuned
        cache_dir("triton_tuning")


command = functools.partial(guarded, "flash-attention-WS-hopper.py", main)
