"""report: the command line. tools/benchmark/report.py is its entry."""

import argparse
import functools
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.outputs import check_outputs, make_folder, write_output
from flash_helpers.base.tool import EXIT_OK, EXIT_USAGE, guarded, tool_parser

from . import charts, html
from .ceilings import Ceilings, measured_ceilings
from .comparison import Rules, compare_runs
from .cuda_backend import peak_tflops
from .landscape import worth_of_switches
from .report import wave_warning
from .results import ProblemResult, by_problem
from .row import Row
from .runs import RunError, load_run, rows_of

DESCRIPTION = """One self-contained HTML page about a run of pt_bench.py or autotune.py, with PNGs.

    report.py RUN.jsonl --out report.html
    report.py NEW.jsonl --base BASE.jsonl --out report.html --pngs images/

Exit codes: 0 written, 2 usage or unusable input.
"""

_FROM = {"measured": "measured in this run", "data sheet": "of the data sheet"}
# TB/s of device memory by the data sheet.
_BANDWIDTH = {"H200": 4.8, "H100": 3.35, "A100": 2.039, "B200": 8.0}


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("report.py", DESCRIPTION)
    add = parser.add_argument
    add("run", type=Path, help="a store of pt_bench.py or autotune.py")
    add("--base", type=Path, help="compare with this run")
    add("--out", type=Path, required=True, help="the page to write")
    add("--pngs", type=Path, help="write the charts into this folder, too")
    add("--title", default="Attention kernels")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("the charts need matplotlib: pip install matplotlib")
    check_outputs({"--out": options.out}, {"--pngs": options.pngs})
    try:
        rows, notes = rows_of(options.run)
        problems = [p for p in by_problem(rows) if p.ranked]
        if not problems:
            raise RunError(f"cannot use {options.run}: none of its {len(rows)} rows is ok")
        ceilings = ceilings_of(rows)
        images = draw(problems, ceilings)
        text = _page(options, problems, rows, images, notes, ceilings)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    write_output(options.out, text)
    if options.pngs:
        make_folder(options.pngs)
        for name, (_, data) in images.items():
            write_output(options.pngs / f"{name}.png", data)
    print(f"{options.out}: {len(problems)} problems, {len(images)} charts")
    return EXIT_OK


Images = dict[str, tuple[str, bytes]]


def ceilings_of(rows: Sequence[Row]) -> Ceilings | None:
    """As measured with the run; else of the data sheet, where it is known."""
    environment = rows[-1].environment
    measured = measured_ceilings(rows)
    peak = peak_tflops(environment)
    gpu = str(environment.get("gpu", ""))
    bandwidth = next((tb for name, tb in _BANDWIDTH.items() if name in gpu), None)
    if measured or not (peak and bandwidth):
        return measured
    return Ceilings((("tensor cores", peak),), (("device memory", bandwidth),), "data sheet")


def draw(problems: Sequence[ProblemResult], ceilings: Ceilings | None) -> Images:
    """The charts by name, each with what it shows."""
    images: Images = {}
    kinds = dict.fromkeys((p.problem.dtype.name, p.problem.d_head) for p in problems)
    for dtype, d_head in kinds:
        mine = [p for p in problems if (p.problem.dtype.name, p.problem.d_head) == (dtype, d_head)]
        title = f"{dtype}, head size {d_head}"
        name = f"{dtype.lower()}-d{d_head}"
        images[f"throughput-{name}"] = (
            f"TFLOP/s against sequence length, {title}",
            charts.throughput(mine, f"Throughput, {title}"),
        )
    if ceilings:
        everything = [m for p in problems for m in p.ranked]
        title = f"Roofline, ceilings {_FROM[ceilings.origin]}"
        image = charts.roofline(everything, ceilings, title)
        images["roofline"] = ("kernels under the ceilings of the GPU", image)
    worth = worth_of_switches(problems)
    if worth:
        image = charts.switches(worth, "What each switch is worth (dots: pairs of kernels)")
        images["switches"] = ("change of the time by every switch of the configuration", image)
    return images


def _page(
    options: argparse.Namespace, problems: Sequence[ProblemResult], rows: Sequence[Row],
    images: Images, notes: Sequence[str], ceilings: Ceilings | None,
) -> str:  # fmt: skip
    wrong = [row for row in rows if row.status not in ("ok", "skipped")]
    explanation = (
        "TFLOP/s of the two matmuls alone. × is how many times as fast as the reference; above 1 "
        "ours is faster. Times are medians."
    )
    error = "error %: the standard error of the mean, where a burst counts as one observation."
    sections = [
        html.paragraph(f"{len(rows)} rows, {len(wrong)} of them failed or wrong.",
                       "bad" if wrong else "quiet"),
        *(html.paragraph(note, "quiet") for note in notes),
        html.section("The fastest", html.paragraph(explanation),
                     html.winners_table(problems, ceilings), *_wave_warnings(problems)),
        html.section("Pictures", html.charts(images.values()), *_ceilings(ceilings)),
    ]  # fmt: skip
    if options.base:
        comparison = compare_runs(load_run(options.base), load_run(options.run), Rules())
        title = f"Against {options.base.name}"
        sections.append(html.section(title, html.comparison_table(comparison)))
    details = map(html.problem_details, problems)
    sections.append(html.section("Every kernel", html.paragraph(error, "quiet"), *details))
    environment = html.environment_table(rows[-1].environment, str(rows[-1].command))
    sections.append(html.section("Environment", environment))
    return html.page(options.title, sections)


def _wave_warnings(problems: Sequence[ProblemResult]) -> list[str]:
    """About the fastest of our kernels on each problem."""
    return [
        html.paragraph(f"Warning, {problem.title()}: {best.label}: {text}.", "quiet")
        for problem in problems
        for best in [m for m in problem.ranked if m.is_ours][:1]
        if (text := wave_warning(best.row))
    ]


def _ceilings(ceilings: Ceilings | None) -> list[str]:
    if ceilings is None:
        return []
    model = (
        "Roofline: FLOP of the two matmuls over the bytes of Q, K and V read once and O written "
        f"once. Ceilings {_FROM[ceilings.origin]}."
    )
    return [html.paragraph(model, "quiet"), html.ceilings_table(ceilings)]


command = functools.partial(guarded, "report.py", main)
