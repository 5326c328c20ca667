"""One page about a run: everything in one file, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

from .comparison import Comparison
from .comparison import describe as describe_key
from .records import Record
from .results import Measurement, ProblemResult, clock_line

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto;
       max-width: 1120px; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
p { max-width: 75ch; } .quiet { color: #5c5c5c; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e3e3e3;
         white-space: nowrap; }
th { font-weight: 600; border-bottom: 2px solid #b8b8b8; }
th.text, td.text { text-align: left; }
tr.reference td { background: #f6f3ea; }
.bad { color: #b00020; font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
          gap: 1rem; }
figure { margin: 0; } img { width: 100%; height: auto; display: block; }
details { margin: .4rem 0; } summary { cursor: pointer; padding: .2rem 0; }
"""


def page(title: str, sections: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def charts(images: Iterable[tuple[str, bytes]]) -> str:
    """(what it shows, PNG), each."""
    figures = "".join(
        f'<figure><img alt="{escape(text)}" src="data:image/png;base64,'
        f'{base64.b64encode(data).decode()}"></figure>'
        for text, data in images
    )
    return f'<div class="charts">{figures}</div>'


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1,
    marked: Sequence[bool] = (),
) -> str:  # fmt: skip
    """The first `text` columns are words, the others figures."""

    def cells(tag: str, values: Sequence[str]) -> str:
        words = [' class="text"' if i < text else "" for i in range(len(values))]
        return "".join(
            f"<{tag}{word}>{escape(value)}</{tag}>"
            for word, value in zip(words, values, strict=True)
        )

    lines = [f"<tr>{cells('th', columns)}</tr>"]
    for i, row in enumerate(rows):
        mark = ' class="reference"' if i < len(marked) and marked[i] else ""
        lines.append(f"<tr{mark}>{cells('td', row)}</tr>")
    return '<div class="scroll"><table>' + "\n".join(lines) + "</table></div>"


def environment_table(environment: Record, command: str) -> str:
    rows = [[name, str(value)] for name, value in environment.items()]
    return table(["what", "value"], [*rows, ["command", command]], text=2)


def winners_table(problems: Sequence[ProblemResult]) -> str:
    providers = list(
        dict.fromkeys(m.row["provider"] for p in problems for m in p.ranked if not m.is_ours)
    )
    rows = []
    for problem in problems:
        best = next((m for m in problem.ranked if m.is_ours), None)
        references = {m.row["provider"]: m for m in problem.ranked if not m.is_ours}
        s = problem.shape
        row = [s["dtype"], best.label if best else "none is right", str(s["d_head"]),
               str(s["seq_len"])]  # fmt: skip
        row += [f"{best.summary.median:.4f}", f"{best.matmul_tflops:.0f}"] if best else ["", ""]
        for provider in providers:
            reference = references.get(provider)
            known = best is not None and reference is not None
            row.append(
                f"{reference.summary.median / best.summary.median:.3f}"
                if known and reference and best
                else "-"
            )
        rows.append(row)
    columns = ["dtype", "our best", "d", "seq", "ms", "TFLOP/s"]
    return table([*columns, *(f"× {provider}" for provider in providers)], rows, text=2)


def problem_details(problem: ProblemResult) -> str:
    columns = ["kernel", "median ms", "p90", "error %", "outliers", "TFLOP/s", "MHz", "registers"]
    rows = [_cells(m) for m in problem.ranked]
    body = table(columns, rows, marked=[not m.is_ours for m in problem.ranked])
    body += paragraph(clock_line(problem.ranked), "quiet")
    body += "".join(
        paragraph(f"{row['status']}: {row['kernel']}: {row['error']}",
                  "quiet" if row["status"] == "skipped" else "bad")
        for row in problem.others
    )  # fmt: skip
    body += "".join(paragraph(f"{m.label}: {n}", "quiet") for m in problem.ranked for n in m.notes)
    return f"<details><summary>{escape(problem.title())}</summary>{body}</details>"


def _cells(m: Measurement) -> list[str]:
    s, row = m.summary, m.row
    mhz = row.get("effective_sm_mhz")
    return [
        m.label,
        f"{s.median:.4f}",
        f"{s.p90:.4f}",
        f"{100 * m.standard_error:.2f}" if len(m.bursts) > 1 else "-",
        str(s.outliers),
        f"{m.matmul_tflops:.1f}",
        f"{mhz:.0f}" if mhz else "-",
        str(row.get("registers") or "-"),
    ]


def comparison_table(comparison: Comparison) -> str:
    lines = [line for line in comparison.lines if line.verdict in ("slower", "faster")]
    lines.sort(key=lambda line: -line.shift.estimate)
    rows = [
        [
            line.label, f"{line.verdict}{': REGRESSION' if line.is_regression else ''}",
            describe_key(line.key), f"{line.base_ms:.4f}", f"{line.new_ms:.4f}",
            f"{100 * (line.shift.estimate - 1):+.2f}",
        ]
        for line in lines
    ]  # fmt: skip
    others = len(comparison.lines) - len(lines)
    columns = ["kernel", "is", "problem", "base ms", "new ms", "change %"]
    found = table(columns, rows, text=3) if rows else ""
    return found + paragraph(f"{others} of {len(comparison.lines)} rows: no sure difference.")
