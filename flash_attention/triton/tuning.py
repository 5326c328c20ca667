"""The fastest configuration of the plain kernel for a problem on this GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from ..triton_kit.calls import check_call
from ..triton_kit.tuning import Call, Measured, Tuned, best, measure_on_gpu, tuning_key
from ..triton_kit.versions import require_triton
from .config import HEAD_DIMS, TritonForwardConfig, configs
from .launch import check_config, launch

SOURCES = [Path(__file__).with_name(f"{name}.py") for name in ("kernel", "config", "launch")]


def best_config(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False
) -> Tuned[TritonForwardConfig]:
    """The fastest configuration for tensors like these (see forward), and its milliseconds.

    Measured at the first call, then read from the cache. A configuration that does not run is left
    out, with a warning. Raises as forward does, and TuningFailedError if none runs.
    """
    problem, out = check_call(q, k, v, None, causal, None, HEAD_DIMS)
    require_triton()

    def measure(candidates: Sequence[TritonForwardConfig]) -> Measured:
        calls: list[Call] = [
            partial(launch, config, problem, q, k, v, out) for config in candidates
        ]
        return measure_on_gpu(calls, q.device)

    def make(**fields: object) -> TritonForwardConfig:
        return check_config(TritonForwardConfig(**fields), problem.d_head)  # type: ignore[arg-type]

    major, minor = torch.cuda.get_device_capability(q.device)
    key = tuning_key("triton", problem, q.dtype, q.device, SOURCES)
    return best(key, configs(problem.d_head, 10 * major + minor), make, measure)
