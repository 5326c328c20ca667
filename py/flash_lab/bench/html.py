"""One page about a run: everything in one file, nothing loaded from elsewhere."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

from .ceilings import Ceilings
from .comparison import Comparison
from .comparison import describe as describe_key
from .results import Measurement, ProblemResult, clock_line
from .row import Json

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto;
       max-width: 1240px; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
p { max-width: 75ch; overflow-wrap: anywhere; } .quiet { color: #5c5c5c; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e3e3e3;
         white-space: nowrap; vertical-align: top; }
th { font-weight: 600; border-bottom: 2px solid #b8b8b8; }
th.text, td.text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; }
td.text:first-child:nth-last-child(2) { min-width: 10rem; }
td.kernel { min-width: 12rem; } td.kernel:last-child { min-width: 28rem; }
tr.reference td { background: #f6f3ea; }
.bad { color: #b00020; font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
          gap: 1rem; }
figure { margin: 0; } img { width: 100%; height: auto; display: block; }
@media (max-width: 640px) { body { padding: .75rem .8rem 2rem; } th, td { padding: .3rem .35rem; }
  td.kernel:last-child { white-space: nowrap; } td.kernel:last-child wbr { display: none; } }
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
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[str] = (),
    marked: Sequence[bool] = (),
) -> str:  # fmt: skip
    """The columns in `words` are text, the others figures. Figures go first and names of kernels
    last: on a phone a table shows its left half."""
    kernels = ("kernel", "our best")
    texts = {name: f' class="text{" kernel" if name in kernels else ""}"' for name in words}
    kinds = [texts.get(name, "") for name in columns]

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            # A kernel's name may go on in the next line after a plus sign.
            f"<{tag}{kind}>{escape(value).replace('+', '+<wbr>' if kind else '+')}</{tag}>"
            for kind, value in zip(kinds, values, strict=True)
        )

    lines = [f"<tr>{cells('th', columns)}</tr>"]
    for i, row in enumerate(rows):
        mark = ' class="reference"' if i < len(marked) and marked[i] else ""
        lines.append(f"<tr{mark}>{cells('td', row)}</tr>")
    return '<div class="scroll"><table>' + "\n".join(lines) + "</table></div>"


def environment_table(environment: Json, command: str) -> str:
    rows = [[name, str(value)] for name, value in environment.items()]
    columns = ["what", "value"]
    return table(columns, [*rows, ["command", command]], words=columns)


def winners_table(problems: Sequence[ProblemResult], ceilings: Ceilings | None) -> str:
    providers = list(
        dict.fromkeys(m.row.provider for p in problems for m in p.ranked if not m.is_ours)
    )
    share = ["% of matmul"] if ceilings and ceilings.origin == "measured" else []
    rows = []
    for problem in problems:
        best = next((m for m in problem.ranked if m.is_ours), None)
        dtype = problem.problem.dtype.name
        row = [dtype, str(problem.seq_len), f"{best.matmul_tflops:.0f}" if best else "-"]
        times = {m.row.provider: m.summary.median for m in reversed(problem.ranked)}
        row += [
            f"{times[name] / best.summary.median:.3f}" if best and name in times else "-"
            for name in providers
        ]
        if share and ceilings:
            peak = ceilings.peak_of(dtype)
            row.append(f"{100 * best.matmul_tflops / peak:.0f}" if best and peak else "-")
        row += [f"{best.summary.median:.4f}" if best else "-", str(problem.problem.d_head)]
        rows.append([*row, best.label if best else "none is right"])
    columns = ["dtype", "seq", "TFLOP/s", *(f"× {provider}" for provider in providers), *share]
    return table([*columns, "ms", "d", "our best"], rows, words=["dtype", "our best"])


def ceilings_table(ceilings: Ceilings) -> str:
    rows = [[name, f"{value:.0f} TFLOP/s"] for name, value in ceilings.peaks]
    rows += [[name, f"{value:.2f} TB/s"] for name, value in ceilings.bandwidths]
    return table(["ceiling", ceilings.origin], rows, words=["ceiling"])


def problem_details(problem: ProblemResult) -> str:
    columns = ["median ms", "TFLOP/s", "kernel", "p90", "error %", "outliers", "MHz", "registers"]
    rows = [_cells(m) for m in problem.ranked]
    marked = [not m.is_ours for m in problem.ranked]
    body = table(columns, rows, words=["kernel"], marked=marked)
    body += paragraph(clock_line(problem.ranked), "quiet")
    body += "".join(
        paragraph(f"{row.status}: {row.kernel}: {row.error}",
                  "quiet" if row.status == "skipped" else "bad")
        for row in problem.others
    )  # fmt: skip
    body += "".join(paragraph(f"{m.label}: {n}", "quiet") for m in problem.ranked for n in m.notes)
    return f"<details><summary>{escape(problem.title())}</summary>{body}</details>"


def _cells(m: Measurement) -> list[str]:
    s, row = m.summary, m.row
    mhz = row.effective_sm_mhz
    return [
        f"{s.median:.4f}",
        f"{m.matmul_tflops:.1f}",
        m.label,
        f"{s.p90:.4f}",
        f"{100 * m.standard_error:.2f}" if len(m.bursts) > 1 else "-",
        str(s.outliers),
        f"{mhz:.0f}" if mhz else "-",
        str(row.registers or "-"),
    ]


def comparison_table(comparison: Comparison) -> str:
    lines = [line for line in comparison.lines if line.verdict in ("slower", "faster")]
    lines.sort(key=lambda line: -line.shift.estimate)
    rows = [
        [
            f"{100 * (line.shift.estimate - 1):+.2f}",
            f"{line.verdict}{': REGRESSION' if line.is_regression else ''}",
            describe_key(line.key), f"{line.base_ms:.4f}", f"{line.new_ms:.4f}", line.label,
        ]
        for line in lines
    ]  # fmt: skip
    others = len(comparison.lines) - len(lines)
    columns = ["change %", "is", "problem", "base ms", "new ms", "kernel"]
    found = table(columns, rows, words=["is", "problem", "kernel"]) if rows else ""
    return found + paragraph(f"{others} of {len(comparison.lines)} rows: no sure difference.")
