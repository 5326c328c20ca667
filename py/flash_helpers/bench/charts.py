"""Charts of results as PNG, by matplotlib. Colours are told apart by the colour-blind, too."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from .landscape import Worth
from .results import Measurement, ProblemResult

_OURS = "#0072b2"
_COLOURS = {
    "ours": _OURS, "fa2": "#d55e00", "fa3": "#009e73", "fa4": "#cc79a7", "cudnn": "#e69f00",
    "flex": "#56b4e9",
}  # fmt: skip
_MARKERS = {"ours": "o", "fa2": "s", "fa3": "^", "fa4": "v", "cudnn": "D", "flex": "P"}


def throughput(problems: Sequence[ProblemResult], title: str) -> bytes:
    """TFLOP/s against sequence length: our best kernel and the references."""
    figure, axes = _figure(title)
    lines: dict[str, list[tuple[int, float, str]]] = {}
    for problem in problems:
        seen: set[str] = set()
        for m in problem.ranked:  # fastest first
            provider = m.row["provider"]
            if provider not in seen:
                seen.add(provider)
                label = "ours, the best" if m.is_ours else m.label
                point = (problem.shape["seq_len"], m.matmul_tflops, label)
                lines.setdefault(provider, []).append(point)
    for provider, points in sorted(lines.items(), key=lambda item: -max(p[1] for p in item[1])):
        points.sort()
        axes.plot(
            [p[0] for p in points], [p[1] for p in points], label=points[0][2],
            color=_COLOURS.get(provider), marker=_MARKERS.get(provider, "x"), markersize=5,
            linewidth=2.4 if provider == "ours" else 1.6,
        )  # fmt: skip
    lengths = sorted({problem.shape["seq_len"] for problem in problems})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sequence length")
    axes.set_ylabel("TFLOP/s of the two matmuls")
    axes.legend(frameon=False, loc="lower right")
    return _png(figure)


def roofline(
    measurements: Sequence[Measurement], peak: float, bandwidth: float, title: str
) -> bytes:
    """Every kernel as a point under the ceilings. `peak` in TFLOP/s, `bandwidth` in TB/s."""
    figure, axes = _figure(title)
    points = [(_intensity(m), m.matmul_tflops, m) for m in measurements]
    low = min(peak / bandwidth / 4, *(x for x, _, _ in points))
    high = max(x for x, _, _ in points) * 2
    corner = peak / bandwidth
    axes.plot([low, corner, high], [low * bandwidth, peak, peak], color="#444444", linewidth=1.6)
    axes.annotate(f"{peak:.0f} TFLOP/s, nominal", (high, peak), ha="right", va="bottom")
    axes.annotate(f"{bandwidth:g} TB/s, nominal", (low, low * bandwidth), ha="left", va="center",
                  xytext=(12, 0), textcoords="offset points")  # fmt: skip
    # Ours are many: they go below the references.
    for provider in sorted(
        {m.row["provider"] for m in measurements}, key=lambda name: name != "ours"
    ):
        mine = [(x, y) for x, y, m in points if m.row["provider"] == provider]
        axes.scatter(
            [x for x, _ in mine], [y for _, y in mine], s=18, alpha=0.75, label=provider,
            color=_COLOURS.get(provider), marker=_MARKERS.get(provider, "x"),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}" if axis is axes.yaxis else "")
    axes.set_xlabel("FLOP per byte of Q, K, V and O")
    axes.set_ylabel("TFLOP/s of the two matmuls")
    axes.legend(frameon=False, loc="lower right")
    return _png(figure)


def switches(found: Sequence[Worth], title: str) -> bytes:
    """What every switch does to the time: the mean, and all pairs as dots."""
    figure, axes = _figure(title, height=0.55 * len(found) + 1.3)
    for row, worth in enumerate(reversed(found)):
        change = [100 * (ratio - 1) for ratio in worth.ratios]
        middle = 100 * (worth.middle - 1)
        axes.barh(row, middle, color=_OURS if middle < 0 else "#d55e00", height=0.55, alpha=0.85)
        axes.scatter(change, [row] * len(change), s=6, color="#222222", alpha=0.35, zorder=3)
    axes.set_yticks(range(len(found)), [worth.label() for worth in reversed(found)])
    axes.axvline(0, color="#444444", linewidth=1)
    axes.set_xlabel("change of the time in % (left: faster); a dot is a pair of kernels")
    return _png(figure)


def _intensity(m: Measurement) -> float:
    s = m.shape
    n_rows: int = s["batch"] * s["seq_len"] * (2 * s["n_heads"] + 2 * s["n_kv_heads"])
    return m.matmul_tflops * 1e9 * m.summary.median / (2 * n_rows * int(s["d_head"]))


def _figure(title: str, height: float = 4.4) -> tuple[Any, Any]:
    # Not pyplot: it keeps state, and picks a window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure: Any) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    data = io.BytesIO()
    FigureCanvasAgg(figure)
    # No date and no version: the same results give the same file.
    figure.savefig(data, format="png", dpi=150, metadata={"Software": None})
    return data.getvalue()
