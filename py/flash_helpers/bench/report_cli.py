"""report: the command line. tools/benchmark/report.py is its entry."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from . import arguments as args
from . import charts, html
from .comparison import Rules, compare_runs
from .cuda_backend import peak_tflops
from .landscape import worth_of_switches
from .records import Record
from .results import ProblemResult, by_problem
from .runs import RunError, load_run, rows_of

DESCRIPTION = """One self-contained HTML page about a run of pt_bench.py or autotune.py, with PNGs.

    report.py RUN.jsonl --out report.html
    report.py NEW.jsonl --base BASE.jsonl --out report.html --pngs images/

Exit codes: 0 written, 2 usage or unusable input.
"""

# TB/s of device memory by the data sheet.
_BANDWIDTH = {"H200": 4.8, "H100": 3.35, "A100": 2.039, "B200": 8.0}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="report.py", description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
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
    try:
        rows, notes = rows_of(options.run)
        problems = [p for p in by_problem(rows) if p.ranked]
        if not problems:
            raise RunError(f"cannot use {options.run}: none of its {len(rows)} rows is ok")
        images = draw(problems, rows[-1].get("environment", {}))
        text = _page(options, problems, rows, images, notes)
        options.out.write_text(text)
        if options.pngs:
            options.pngs.mkdir(parents=True, exist_ok=True)
            for name, (_, data) in images.items():
                (options.pngs / f"{name}.png").write_bytes(data)
    except (RunError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return args.EXIT_USAGE
    print(f"{options.out}: {len(problems)} problems, {len(images)} charts")
    return args.EXIT_OK


Images = dict[str, tuple[str, bytes]]


def draw(problems: Sequence[ProblemResult], environment: Record) -> Images:
    """The charts by name, each with what it shows."""
    images: Images = {}
    kinds = dict.fromkeys((p.shape["dtype"], p.shape["d_head"]) for p in problems)
    for dtype, d_head in kinds:
        mine = [p for p in problems if (p.shape["dtype"], p.shape["d_head"]) == (dtype, d_head)]
        title = f"{dtype}, head size {d_head}"
        name = f"{dtype.lower()}-d{d_head}"
        images[f"throughput-{name}"] = (
            f"TFLOP/s against sequence length, {title}",
            charts.throughput(mine, f"Throughput, {title}"),
        )
    peak = peak_tflops(environment)
    gpu = str(environment.get("gpu", ""))
    bandwidth = next((tb for name, tb in _BANDWIDTH.items() if name in gpu), None)
    if peak and bandwidth:
        everything = [m for p in problems for m in p.ranked]
        image = charts.roofline(everything, peak, bandwidth, f"Roofline of {gpu} (data sheet)")
        images["roofline"] = ("kernels under the ceilings of the GPU", image)
    worth = worth_of_switches(problems)
    if worth:
        image = charts.switches(worth, "What each switch is worth, all problems")
        images["switches"] = ("change of the time by every switch of the configuration", image)
    return images


def _page(
    options: argparse.Namespace, problems: Sequence[ProblemResult], rows: Sequence[Record],
    images: Images, notes: Sequence[str],
) -> str:  # fmt: skip
    wrong = [row for row in rows if row["status"] not in ("ok", "skipped")]
    explanation = (
        "TFLOP/s of the two matmuls alone. × is how many times as fast as the reference; above 1 "
        "ours is faster. Medians; `error` is the standard error with bursts as observations."
    )
    sections = [
        html.paragraph(f"{len(rows)} rows, {len(wrong)} of them failed or wrong.",
                       "bad" if wrong else "quiet"),
        *(html.paragraph(note, "quiet") for note in notes),
        html.section("The fastest", html.paragraph(explanation), html.winners_table(problems)),
        html.section("Pictures", html.charts(images.values())),
    ]  # fmt: skip
    if options.base:
        comparison = compare_runs(load_run(options.base), load_run(options.run), Rules())
        title = f"Against {options.base.name}"
        sections.append(html.section(title, html.comparison_table(comparison)))
    sections.append(html.section("Every kernel", *map(html.problem_details, problems)))
    environment = html.environment_table(
        rows[-1].get("environment", {}), str(rows[-1].get("command", ""))
    )
    sections.append(html.section("Environment", environment))
    return html.page(options.title, sections)
