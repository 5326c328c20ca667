"""`--mode nvtx`: every configuration in named ranges, for nsys; without it, in a trace of
torch.profiler."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.base.lazy import torch
from flash_helpers.base.outputs import OutputError, write_output
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL, ranked
from flash_helpers.kernels.problem import AttentionProblem

from ..profiling.nvtx import annotate
from ..profiling.trace import RANGE, Trace, load, record
from . import checking, text
from .options import NVTX, problems
from .providers import WS_PROVIDERS, Bound, bind
from .words import words

DEFAULT_TRACE = Path("nvtx_profile.trace.json")
_CALLS = 5  # in a range: the first may be slower
_CHECKED_HEADS = 4
# Nsight Systems sets it for what it profiles. Both it and torch.profiler would want CUPTI.
_UNDER_NSYS = "NSYS_PROFILING_SESSION_ID"


def bench_range(provider: str, p: AttentionProblem) -> str:
    """The seed's name."""
    return f"bench_{provider}_B{p.batch}_H{p.n_heads}_N{p.seqlen_q}_D{p.d_head}"


def attention_range(provider: str, p: AttentionProblem) -> str:
    """The seed's names, `attention_ws` and `attention_ws_pp`; a reference has its own."""
    ws = WS_PROVIDERS.get(provider)
    kind = provider if ws is None else "ws_pp" if ws.ping_pong else "ws"
    return f"attention_{kind}_B{p.batch}_H{p.n_heads}_N{p.seqlen_q}_D{p.d_head}"


@dataclass(frozen=True)
class Prepared:
    provider: str
    problem: AttentionProblem
    bound: Bound


def run(options: argparse.Namespace) -> int:
    if not checking.has_gpu(NVTX):
        return EXIT_NO_DATA
    return trace(options, "cuda")


def trace(options: argparse.Namespace, device: str) -> int:
    """Tuned and checked first, so that the ranges hold nothing but the kernels."""
    prepared, code = _prepare(options, device)
    if not prepared:
        return code or EXIT_NO_DATA
    if os.environ.get(_UNDER_NSYS):
        _run_all(prepared, device)
        print("the ranges are in nsys's report: nsys stats nvtx_profile.nsys-rep")
        return code
    print("not under nsys: torch.profiler records the same ranges", file=sys.stderr)
    path = options.trace or DEFAULT_TRACE
    recorded = record(lambda: _run_all(prepared, device), on_gpu=device == "cuda")
    with tempfile.TemporaryDirectory() as folder:  # torch only prints it where it cannot write
        exported = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(exported))
        data, found = exported.read_bytes(), load(exported)
    title = words(options.lang)("ranges")
    print(text.section(title, ranges_table(found, prepared, options.lang)))
    try:
        write_output(path, data)
    except OutputError as error:
        print(f"error: {error}; its times are in the table above", file=sys.stderr)
        return ranked(code, [str(error)])
    print(f"{path}: {len(data)} bytes; open it in https://ui.perfetto.dev")
    return code


def _prepare(options: argparse.Namespace, device: str) -> tuple[list[Prepared], int]:
    prepared: list[Prepared] = []
    code = EXIT_OK
    for problem in problems(options):
        tensors = problem.tensors(options.seed, device)
        judge = checking.judge_of(tensors, problem.causal, _CHECKED_HEADS)
        for provider in options.provider:
            where = f"{provider}, N_CTX={problem.seqlen_q}"
            try:
                bound = bind(provider, tensors, judge.poisoned(), problem.causal)
                wrong = judge.problem_with(bound.run())
            except Exception as error:  # whatever a kernel raises is its result
                print(f"not run: {where}: {error}", file=sys.stderr)
                code = code or EXIT_PARTIAL
                continue
            if wrong:
                print(f"wrong: {where}: {wrong}", file=sys.stderr)
                code = EXIT_FAILED
            else:
                prepared.append(Prepared(provider, problem, bound))
    if not prepared and code == EXIT_PARTIAL:
        code = EXIT_NO_DATA
    return prepared, code


def _run_all(prepared: list[Prepared], device: str) -> None:
    for item in prepared:
        with annotate(bench_range(item.provider, item.problem)):
            for _ in range(_CALLS):
                with annotate(attention_range(item.provider, item.problem)):
                    item.bound.run()
            if device == "cuda":  # the kernels end before the range does
                torch.cuda.synchronize()


def ranges_table(recorded: Trace, prepared: list[Prepared], language: str) -> str:
    """Times of the host in every range, and of the kernels that were launched in it."""
    say = words(language)
    names = dict.fromkeys(
        name(item.provider, item.problem)
        for item in prepared
        for name in (bench_range, attention_range)
    )
    on_host: dict[str, list[float]] = {name: [] for name in names}
    for span in recorded.spans:
        if span.name in on_host and span.kind == RANGE:
            on_host[span.name].append(span.us)
    missing = [name for name, found in on_host.items() if not found]
    assert not missing, f"torch.profiler has lost the ranges {missing}"
    on_device = dict.fromkeys(names, 0.0)
    for item in recorded.on_gpu:
        for name in {span.name for span in item.caller.outwards()} if item.caller else ():
            if name in on_device:
                on_device[name] += item.us
    columns = [say("ranges"), say("calls"), say("host (ms)"), say("device (ms)")]
    rows = [
        [name, len(found), text.fixed(sum(found) / 1e3, 3), text.fixed(on_device[name] / 1e3, 3)]
        for name, found in on_host.items()
    ]
    return text.table(columns, rows)
