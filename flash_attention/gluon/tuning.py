"""The fastest configuration of WS or WS PP for a problem on this GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from ..triton_kit.calls import check_call
from ..triton_kit.tuning import (
    Call,
    Measured,
    NotTunedError,
    Tuned,
    best,
    measure_on_gpu,
    tuning_key,
)
from ..triton_kit.versions import require_triton
from .config import HEAD_DIMS, GluonForwardConfig, configs
from .launch import check_config, check_device, launch

_FILES = ("kernel", "groups", "blocks", "softmax", "loader", "tma", "config", "descriptors")
SOURCES = [Path(__file__).with_name(f"{name}.py") for name in _FILES]


def best_config(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, ping_pong: bool, causal: bool = False,
    measure_now: bool = True,
) -> Tuned[GluonForwardConfig]:  # fmt: skip
    """The fastest configuration for tensors like these (see forward), and its milliseconds.

    Measured at the first call, seconds to a minute for the compiler, then read from the cache. A
    configuration that does not run is left out, with a warning. Raises as forward does, and
    TuningFailedError if none runs; with `measure_now` False (nothing is launched then)
    NotTunedError if the cache has none.
    """
    problem, out = check_call(q, k, v, None, causal, None, HEAD_DIMS)
    check_config(None, ping_pong, problem.d_head)
    require_triton()
    check_device(q.device)
    if problem.seqlen_k == 0:
        raise ValueError(f"k has shape {tuple(k.shape)}: without keys there is nothing to measure")

    kind = "gluon-ws-pp" if ping_pong else "gluon-ws"

    def measure(candidates: Sequence[GluonForwardConfig]) -> Measured:
        if not measure_now:
            raise NotTunedError(f"nothing was measured yet for {kind}, {problem}")
        calls: list[Call] = [
            partial(launch, config, problem, ping_pong, q, k, v, out) for config in candidates
        ]
        return measure_on_gpu(calls, q.device)

    def make(**fields: object) -> GluonForwardConfig:
        config = GluonForwardConfig(**fields)  # type: ignore[arg-type]
        return check_config(config, ping_pong, problem.d_head)

    key = tuning_key(kind, problem, q.dtype, q.device, SOURCES)
    return best(key, configs(ping_pong, problem.d_head), make, measure)
