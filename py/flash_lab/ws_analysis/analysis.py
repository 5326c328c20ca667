"""`--mode analysis`: what the pipelined kernels gain, how they scale, what they use, and how near
they come to what the GPU can do."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..bench import charts
from ..bench.ceilings import Ceilings
from ..bench.report_cli import ceilings_of
from ..bench.results import ProblemResult
from ..bench.runs import observations
from ..bench.significance import Shift, shift
from . import measuring, profiles, resources, text
from .measuring import Measured
from .providers import PAIRS
from .words import Words, words

# For a table of few comparisons: one of twenty may be called a difference by chance.
_ALPHA = 0.05


def analyse(options: argparse.Namespace, backend: str) -> int:
    return measuring.measure(options, backend, _show, with_ceilings=not options.no_ceilings)


def _show(found: Measured, options: argparse.Namespace) -> int:
    say = words(options.lang)
    problems = found.problems
    ceilings = None if options.no_ceilings else ceilings_of(found.rows)
    measuring.print_configurations(problems, say)
    print(text.section(say("performance"), text.performance_table(problems, say)))
    print(measuring.explanation(options))
    print(f"\n# {say('comparison')}")
    print(text.section(say("speedup of PP"), *speedup_section(problems, say)))
    print(text.section(say("scaling"), *scaling_section(problems, say)))
    print(text.section(say("resources"), *resources.section(problems, found.environment, say)))
    files = measuring.plots(problems, f"batch {options.batch}, {options.heads} heads")
    if ceilings is not None:
        print(text.section(say("roofline"), *roofline_section(problems, ceilings, say)))
        title = f"Roofline, ceilings: {ceilings.origin}"
        files["roofline.png"] = lambda: charts.roofline(text.measured(problems), ceilings, title)
    lines, code = profiles.section(options, say)
    print(text.section(say("pipeline"), *lines))
    print("\n".join(text.not_measured(problems)))
    return measuring.write(options.results, files, say) or code


@dataclass(frozen=True)
class Speedup:
    """Of the pipelined kernel over the basic one, on one length: `factor` above 1 is faster."""

    n_ctx: int
    pair: tuple[str, str]
    factor: Shift

    @property
    def verdict(self) -> str:
        if self.factor.low > 1:
            return "faster"
        return "slower" if self.factor.high < 1 else "no sure difference"

    def sentence(self) -> str:
        basic, pipelined = self.pair
        f = self.factor
        interval = f"95 % interval {f.low:.3f} to {f.high:.3f}"
        if not f.low or math.isinf(f.high):
            interval = "too few samples for an interval"
        return (
            f"N_CTX={self.n_ctx}: {pipelined} takes 1/{f.estimate:.3f} of the time of {basic} "
            f"({interval}): {self.verdict}."
        )


def speedups(problems: Sequence[ProblemResult]) -> list[Speedup]:
    """Where both of a pair were measured."""
    found = []
    for problem in problems:
        by_provider = {m.row.provider: m for m in problem.ranked}
        for pair in PAIRS:
            if all(name in by_provider for name in pair):
                basic, pipelined = (observations(by_provider[name]) for name in pair)
                # Times the other way round: a factor above 1 says that the pipelined is faster.
                factor = shift(pipelined, basic, _ALPHA)
                found.append(Speedup(problem.seq_len, pair, factor))
    return found


def speedup_section(problems: Sequence[ProblemResult], say: Words) -> list[str]:
    found = speedups(problems)
    if not found:
        return ["no length has both kernels of a pair (WS and WS PP): nothing to compare"]
    columns = [say("provider"), "N_CTX", "WS ms", "PP ms", say("speedup"), say("verdict")]
    measured = text.measured(problems)
    times = {(m.row.provider, m.problem.seqlen_q): m.summary.median for m in measured}
    rows = [
        [
            s.pair[1], s.n_ctx, *(text.fixed(times[name, s.n_ctx], 3) for name in s.pair),
            f"{s.factor.estimate:.3f}", s.verdict,
        ]
        for s in found
    ]  # fmt: skip
    return [text.table(columns, rows), *(s.sentence() for s in found)]


def scaling_section(problems: Sequence[ProblemResult], say: Words) -> list[str]:
    """From the shortest to the longest length: how the rate grows."""
    lengths = sorted({problem.seq_len for problem in problems})
    if len(lengths) < 2:
        return ["one length only: nothing to compare"]
    ends = (lengths[0], lengths[-1])
    rates = {(m.row.provider, m.problem.seqlen_q): m.matmul_tflops for m in text.measured(problems)}
    ratio = f"{say('efficiency')} ({ends[1]}/{ends[0]})"
    columns = [say("provider"), *(f"N_CTX={n} TFLOPS" for n in ends), ratio]
    rows, sentences = [], []
    for name in dict.fromkeys(provider for provider, _ in rates):
        short, long = (rates.get((name, n)) for n in ends)
        if short is None or long is None:
            continue
        rows.append([name, text.fixed(short, 2), text.fixed(long, 2), f"{long / short:.2f}"])
        sentences.append(
            f"{name}: {(ends[1] / ends[0]) ** 2:.0f} times the FLOPs from N_CTX={ends[0]} to "
            f"{ends[1]}, at {long / short:.2f} times the rate."
        )
    if not rows:
        return [f"no provider was measured at both N_CTX={ends[0]} and {ends[1]}"]
    return [text.table(columns, rows), *sentences]


def roofline_section(
    problems: Sequence[ProblemResult], ceilings: Ceilings, say: Words
) -> list[str]:  # fmt: skip
    """Each provider under the lower of the two ceilings at its FLOP per byte."""
    peak, bandwidth = ceilings.peak, ceilings.bandwidth
    columns = [
        say("provider"), "N_CTX", say("flop per byte"), say("roof"), say("achieved"),
        say("of roof %"), say("bound by"),
    ]  # fmt: skip
    rows, best = [], dict[int, str]()
    for m in text.measured(problems):
        n_ctx = m.problem.seqlen_q
        roof = min(peak, m.intensity * bandwidth)
        bound = "tensor cores" if roof == peak else "device memory"
        share = 100 * m.matmul_tflops / roof
        rows.append([
            m.row.provider, n_ctx, f"{m.intensity:.1f}", f"{roof:.1f}",
            text.fixed(m.matmul_tflops, 2), text.fixed(share, 1), say(bound),
        ])  # fmt: skip
        allowed = "the tensor cores allow" if roof == peak else "device memory allows"
        best.setdefault(
            n_ctx,
            f"N_CTX={n_ctx}: the fastest, {m.row.provider}, reaches {share:.1f} % of what "
            f"{allowed} at {m.intensity:.0f} FLOP per byte.",
        )
    note = (
        f"Ceilings ({ceilings.origin}): {ceilings.peaks[0][0]} {peak:.0f} TFLOP/s, "
        f"{ceilings.bandwidths[0][0]} {bandwidth:.2f} TB/s. FLOP of the two matmuls over the bytes "
        "of Q, K and V read once and O written once."
    )
    return [text.table(columns, rows), note, *best.values()]
