"""Numerics and speed of every configuration on this GPU: `python tools/benchmark/gluon_check.py`.

Prints TFLOP/s (4 b h n n d, causal half of it) of WS and WS PP in every configuration of the
space, beside cuDNN and flash-attn where they are there, sampled in turns in one process. Exit code
0: every output is right; 1: an output is wrong or a configuration does not run; 2: usage; 4: no
Hopper GPU; 130: interrupted.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter

import torch

from flash_attention.gluon.config import FENCES, GluonForwardConfig, configs, default_config
from flash_attention.gluon.launch import forward
from flash_attention.triton_kit.tuning import Call, failures, medians
from flash_helpers.base.dtypes import DType
from flash_helpers.base.timing import Policy
from flash_helpers.check.judge import Judge
from flash_helpers.check.peers import package_function, sdpa_function
from flash_helpers.kernels.problem import AttentionProblem, fresh_seed

_LENGTHS = ((1, 1), (63, 63), (203, 203), (1024, 1024), (1023, 2500), (4097, 4097))
_KIND = {False: "WS", True: "WS PP"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seqlen", type=int, default=8192)
    parser.add_argument("--d_head", type=int, default=128, choices=(64, 128))
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16"))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--all_fences", action="store_true", help="every OVERLAP_FENCE of WS PP")
    parser.add_argument("--skip_numerics", action="store_true")
    parser.add_argument("--skip_speed", action="store_true")
    options = parser.parse_args(argv)
    if min(options.seqlen, options.heads, options.batch, options.repeats) < 1:
        parser.error("sizes and repeats must be at least 1")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("no Hopper GPU: nothing was run")
        return 4
    wrong = 0 if options.skip_numerics else check_numerics(options.d_head, options.dtype)
    failed = 0 if options.skip_speed else sum(measure(options, c) for c in (False, True))
    return 1 if wrong or failed else 0


def space(ping_pong: bool, d_head: int, all_fences: bool) -> list[GluonForwardConfig]:
    """The autotuning space; for WS PP with every fence if asked."""
    found = configs(ping_pong, d_head)
    if ping_pong and all_fences:
        found = [replace(c, OVERLAP_FENCE=fence) for c in found for fence in FENCES]
    return list(dict.fromkeys(found))


def check_numerics(d_head: int, dtype: str) -> int:
    """How many outputs are wrong by the row rule."""
    wrong = 0
    seed, element = fresh_seed(), _element(dtype)
    print(f"# numerics, d {d_head}, {dtype}, seed {seed}")
    for ping_pong, causal in ((p, c) for p in (False, True) for c in (False, True)):
        worst = 0.0
        for n_q, n_k in _LENGTHS:
            problem = AttentionProblem(element, 2, n_q, n_k, 4, 2, d_head, causal=causal)
            judge = Judge(problem.tensors(seed, "cuda"), causal=causal)
            for config in space(ping_pong, d_head, all_fences=False):
                out = judge.poisoned()
                forward(*judge.tensors, ping_pong=ping_pong, causal=causal, config=config, out=out)
                found, overwritten = judge.compare(out), judge.restore()
                worst = max(worst, found.relative)
                if overwritten or not found.passed:
                    wrong += 1
                    print(f"WRONG {_KIND[ping_pong]} causal {causal} {n_q} x {n_k} {config}: "
                          f"{overwritten or found.describe()}", flush=True)  # fmt: skip
        print(f"{_KIND[ping_pong]:6s} causal {causal!s:5s} worst {worst:.2f} of the tolerance",
              flush=True)  # fmt: skip
    return wrong


def measure(options: argparse.Namespace, causal: bool) -> int:
    """Prints a table; how many configurations failed."""
    problem = AttentionProblem.self_attention(
        _element(options.dtype), options.batch, options.seqlen, options.heads, options.d_head,
        causal=causal,
    )  # fmt: skip
    q, k, v = problem.tensors(fresh_seed(), "cuda")
    flop = problem.matmul_flop()
    calls = dict(_candidates(q, k, v, causal, options))
    began = time.monotonic()
    reasons = failures(calls, q.device)
    for name, reason in reasons.items():  # the others shall still be measured
        print(f"FAILED {name}: {reason}", flush=True)
    print(f"# {tuple(q.shape)} causal {causal}: compiled in {time.monotonic() - began:.0f} s")
    policy = Policy(warmups=1, repeats=options.repeats, cold_l2=False, burst=2)
    running = {name: call for name, call in calls.items() if name not in reasons}
    times = medians(running, q.device, policy)
    for name, ms in sorted(times.items(), key=itemgetter(1)):
        print(f"{flop / ms / 1e9:7.1f} TFLOP/s {ms:8.3f} ms  {name}", flush=True)
    return sum(not name.startswith("peer") for name in reasons)


def _candidates(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, options: argparse.Namespace
) -> Iterator[tuple[str, Call]]:
    yield "peer cuDNN", partial(sdpa_function("CUDNN_ATTENTION", causal), q, k, v)
    peer, _ = package_function("flash_attn.cute", causal)
    if peer is not None:
        yield "peer flash-attn 4", partial(peer, q, k, v)
    for ping_pong in (False, True):
        default = default_config(ping_pong, options.d_head)
        for config in space(ping_pong, options.d_head, options.all_fences):
            out = torch.empty_like(q)
            fields = " ".join(f"{n}={x}" for n, x in config.as_dict().items())
            mark = " (default)" if config == default else ""
            yield (
                f"{_KIND[ping_pong]:6s}{fields}{mark}",
                partial(forward, q, k, v, ping_pong=ping_pong, causal=causal, config=config,
                        out=out),
            )  # fmt: skip


def _element(dtype: str) -> DType:
    return DType.from_torch_dtype(getattr(torch, dtype))
