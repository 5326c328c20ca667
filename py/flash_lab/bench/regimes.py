"""flash_attn_func against its peers in two regimes: a few calls from a card at rest, and seconds of
uninterrupted work. A card at its power limit ranks kernels by energy in the second."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flash_helpers.base.dtypes import DType
from flash_helpers.base.lazy import torch
from flash_helpers.base.outputs import OutputError, append_output, check_outputs, write_output
from flash_helpers.base.timing import CudaTimer
from flash_helpers.base.tool import EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL, guarded
from flash_helpers.check.sizes import BATCH_SIZE_FOR_SEQ_LEN
from flash_helpers.kernels.problem import AttentionProblem

from ..arguments import dtype, number, one_of, positive, positive_list, seed
from ..provenance import provenance
from .clocks import ClockSampler
from .distributions import DISTRIBUTIONS, RANDN, draw
from .energy import EnergyMeter, cuda_mark
from .providers import OURS, find_reference
from .regimes_table import PEERS, show
from .row import shape_of
from .row_fields import is_figure

if TYPE_CHECKING:
    import torch

_SHAPE = ("batch", "seq_len", "n_heads", "n_kv_heads", "d_head", "causal", "dtype")
REST_S = 0.2  # before each burst
BURST_CALLS = 3


def functions(
    problem: AttentionProblem, seed: int, inputs: str = RANDN
) -> dict[str, Callable[[], object]]:
    """Ours and the peers that are here, on the same tensors; missing ones are said."""
    import flash_attention

    q, k, v = tensors(problem, seed, inputs)
    found: dict[str, Callable[[], object]] = {
        OURS: lambda: flash_attention.flash_attn_func(q, k, v, causal=problem.causal)
    }
    for peer in PEERS:
        try:
            _, _, attention = find_reference(peer, problem.causal)
            attention(q, k, v)
        except Exception as error:  # a peer refuses in its own way; the row says that it is missing
            print(f"{peer}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            continue
        found[peer] = functools.partial(attention, q, k, v)
    return found


def tensors(problem: AttentionProblem, seed: int, inputs: str) -> tuple[torch.Tensor, ...]:
    import torch

    if inputs == RANDN:
        return problem.tensors(seed, "cuda")
    generator = torch.Generator("cuda").manual_seed(seed)
    lengths = ((problem.seqlen_q, problem.n_heads), (problem.seqlen_k, problem.n_kv_heads))
    shape_q, shape_k = ((problem.batch, n, heads, problem.d_head) for n, heads in lengths)
    return draw(inputs, shape_q, shape_k, problem.dtype.to_torch_dtype(), generator)


def burst(calls: Mapping[str, Callable[[], object]], rounds: int, seed: int) -> dict[str, float]:
    """Median milliseconds; each group of calls begins on a card that has rested."""
    timer = CudaTimer(torch.device("cuda"), cold_l2=True)
    chance = random.Random(seed)  # noqa: S311  an order, nothing secret
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in chance.sample(list(calls), len(calls)):
            torch.cuda.synchronize()
            time.sleep(REST_S)
            samples[name] += [timer(calls[name]).ms for _ in range(BURST_CALLS)]
    return {name: statistics.median(taken) for name, taken in samples.items()}


def sustained(call: Callable[[], object], call_ms: float, seconds: float) -> dict[str, Any]:
    """Milliseconds a call, SM MHz, watts and joules a call over the second half of the time."""
    meter = EnergyMeter("", cuda_mark)
    meter.per_call(call, call_ms, seconds / 2)
    with ClockSampler() as clocks:
        energy = meter.per_call(call, call_ms, seconds / 2)
    return {
        "ms": energy.seconds / energy.n_calls * 1000,
        "sm_mhz": clocks.summary().get("sm_mhz"),
        "watts": energy.watts,
        "joules": energy.joules,
    }


def sustained_rounds(
    calls: Mapping[str, Callable[[], object]], call_ms: Mapping[str, float],
    options: argparse.Namespace,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Medians of `sustained`, the providers in a new order in every round: a card that warms up, or
    what else changes within seconds, weighs on all of them."""
    chance = random.Random(options.seed)  # noqa: S311  an order, nothing secret
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in calls}
    for _ in range(options.sustained_rounds):
        for name in chance.sample(list(calls), len(calls)):
            taken[name].append(sustained(calls[name], call_ms[name], options.seconds))
    return {name: {key: _median(found, key) for key in found[0]} for name, found in taken.items()}


def _median(found: list[dict[str, Any]], key: str) -> float | None:
    values = [each[key] for each in found]
    return None if None in values else statistics.median(values)


def rows(
    problems: Iterable[AttentionProblem], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    for problem in problems:
        calls = functions(problem, options.seed, options.inputs)
        tera = problem.matmul_flop() / 1e12
        short = burst(calls, options.rounds, options.seed)
        long = sustained_rounds(calls, short, options) if options.seconds else {}
        shape = shape_of(problem, options.seed)
        for name in calls:
            row = {
                "provider": name,
                **{field: shape[field] for field in _SHAPE},
                "inputs": options.inputs,
            }
            try:
                row |= _figures(tera, short[name], long.get(name))
            except (ValueError, ArithmeticError) as error:
                row["error"] = f"no figures: {error}"
            yield row


def _figures(tera: float, burst_ms: float, long: Mapping[str, Any] | None) -> dict[str, Any]:
    """Raises ValueError or ArithmeticError for what cannot have been measured."""
    found: dict[str, Any] = {"burst_tflops": round(tera / burst_ms * 1e3, 1)}
    if long:
        found |= {
            "sustained_tflops": round(tera / long["ms"] * 1e3, 1),
            "sm_mhz": long["sm_mhz"],
            "watts": round(long["watts"]),
            "joules_per_tflop": round(long["joules"] / tera, 3),
        }
    for name, value in found.items():
        if value is not None and not (is_figure(value) and value > 0):
            raise ValueError(f"{name} is {value}")
    return found


def problems_of(options: argparse.Namespace) -> Iterator[AttentionProblem]:
    """Raises ValueError for a length without a usual batch size, unless one is given."""
    masks = {"full": (False,), "causal": (True,), "both": (False, True)}[options.mask]
    axes = itertools.product(options.d_heads, masks, options.seq_lens)
    for d_head, causal, seq_len in axes:
        batch = options.batch or BATCH_SIZE_FOR_SEQ_LEN.get(seq_len)
        if batch is None:
            known = ", ".join(map(str, BATCH_SIZE_FOR_SEQ_LEN))
            raise ValueError(f"--seq_lens {seq_len}: give --batch, or take one of {known}")
        yield AttentionProblem.self_attention(
            options.dtype, batch, seq_len, options.heads, d_head,
            n_kv_heads=options.kv_heads or 0, causal=causal,
        )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="regimes.py")
    add = parser.add_argument
    add("--d_heads", type=positive_list, default=[64, 128])
    add("--seq_lens", type=positive_list, default=[512, 1024, 2048, 4096, 8192, 16384])
    add("--dtype", type=dtype, default=DType.FP16)
    add("--mask", choices=("full", "causal", "both"), default="both")
    add("--batch", type=positive, help="default: by length, as in pt_bench.py")
    add("--heads", type=positive, default=16)
    add("--kv_heads", type=positive, help="default: as many as --heads")
    add("--inputs", type=one_of("distribution", list(DISTRIBUTIONS)), default=RANDN,
        help="as in accuracy.py: " + ", ".join(DISTRIBUTIONS))  # fmt: skip
    add("--rounds", type=positive, default=3, help="bursts of each provider")
    add("--seconds", type=number(0, 3600), default=2.0, help="of sustained work; 0: none")
    add("--sustained_rounds", type=positive, default=2, help="such times of each provider")
    add("--seed", type=seed, default=random.randrange(2**31))  # noqa: S311
    add("--out", type=Path, help="JSON Lines; needed to measure")
    add("--show", type=Path, nargs="+", metavar="ROWS", help="print what was measured as a table")
    add("--bar", type=number(0, 100), default=1.05, help="of --show: ours over the best peer")
    options = parser.parse_args(argv)
    try:
        if options.show:
            return show(options.show, options.bar)
        problems = list(problems_of(options))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if options.out is None:
        parser.error("the following arguments are required: --out")
    check_outputs({"--out": options.out})
    if not torch.cuda.is_available():
        print("regimes.py: no GPU", file=sys.stderr)
        return EXIT_NO_DATA
    write_output(options.out, f"{json.dumps(provenance())}\n")
    failed = False
    for row in rows(problems, options):
        print(*row.values(), flush=True)  # first: it stays where the file cannot be written
        failed = failed or "error" in row
        try:
            append_output(options.out, f"{json.dumps(row)}\n")
        except OutputError as error:
            raise OutputError(f"{error}; the rows up to here are printed above") from error
    return EXIT_PARTIAL if failed else EXIT_OK


command = functools.partial(guarded, "regimes.py", main)
