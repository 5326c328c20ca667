"""`--mode ncu`: one launch of one configuration, for ncu. Nothing else runs on the GPU, so that a
profile without any filter has this kernel alone."""

from __future__ import annotations

import argparse
import sys

from flash_helpers.base.lazy import torch
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL
from flash_helpers.kernels.problem import AttentionProblem

from ..profiling.nvtx import annotate
from . import checking, profiles
from .nvtx_mode import attention_range
from .options import NCU, problems
from .providers import Bound, bind

_CHECKED_HEADS = 1  # on the CPU, since ncu sees what the GPU does


def run(options: argparse.Namespace) -> int:
    if options.report:
        return profiles.report(options)
    if not checking.has_gpu(NCU):
        return EXIT_NO_DATA
    codes = [
        profile_one(provider, problem, options.seed, tune=options.prepare)
        for problem in problems(options)
        for provider in options.provider
    ]
    if EXIT_FAILED in codes:
        return EXIT_FAILED
    if EXIT_OK not in codes:
        return EXIT_NO_DATA
    return max(codes) and EXIT_PARTIAL


def profile_one(provider: str, problem: AttentionProblem, seed: int, *, tune: bool) -> int:
    """Launches, checks on the CPU, and says which configuration it was."""
    where = f"{provider}, N_CTX={problem.seqlen_q}"
    host = problem.tensors(seed, "cpu")
    # Copies are no kernels; numbers drawn on the GPU would be in the profile.
    q, k, v = (x.to("cuda") for x in host)
    out = torch.empty_like(q)
    try:
        bound = bind(provider, (q, k, v), out, problem.causal, tune=tune)
        output = _launch(bound, attention_range(provider, problem))
    except Exception as error:  # whatever a kernel raises is its result
        print(f"not run: {where}: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    wrong = checking.judge_of(host, problem.causal, _CHECKED_HEADS).problem_with(output.cpu())
    if wrong:
        print(f"wrong: {where}: {wrong}", file=sys.stderr)
        return EXIT_FAILED
    chosen = ", ".join(f"{name}={value}" for name, value in bound.parameters.items())
    print(f"{where}: right; {chosen or bound.label}" + (f" ({bound.tuned})" if bound.tuned else ""))
    return EXIT_OK


def _launch(bound: Bound, name: str) -> torch.Tensor:
    """Between cudaProfilerStart and cudaProfilerStop, for ncu --profile-from-start off."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    with annotate(name):
        output = bound.run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    return output
