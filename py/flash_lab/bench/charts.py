"""Charts of results as PNG, by matplotlib. Colours are told apart by the colour-blind, too."""

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .ceilings import Ceilings
from .landscape import Worth
from .results import Measurement, ProblemResult

_OURS = "#0072b2"
_COLOURS = {
    "ours": _OURS, "fa2": "#d55e00", "fa3": "#009e73", "fa4": "#cc79a7", "cudnn": "#e69f00",
    "flex": "#56b4e9", "triton-ws-fp16": "#56b4e9", "triton-ws-pp-fp16": "#009e73",
    "cuda-ws-fp16": "#888888", "cuda-ws-pp-fp16": _OURS,
}  # fmt: skip
_MARKERS = {
    "ours": "o", "fa2": "s", "fa3": "^", "fa4": "v", "cudnn": "D", "flex": "P",
    "triton-ws-fp16": "P", "triton-ws-pp-fp16": "^", "cuda-ws-fp16": "X", "cuda-ws-pp-fp16": "o",
}  # fmt: skip

_NAMES_INSIDE, _NAMES_A_LINE = 3, 3


def throughput(problems: Sequence[ProblemResult], title: str) -> bytes:
    """TFLOP/s against sequence length: our best kernel and the references."""
    return over_lengths(
        problems, title, lambda m: m.matmul_tflops, "TFLOP/s of the two matmuls", "lower right"
    )


def over_lengths(
    problems: Sequence[ProblemResult], title: str, value: Callable[[Measurement], float],
    y_label: str, legend: str, *, log: bool = False,
) -> bytes:  # fmt: skip
    """A figure of the best kernel of each provider against sequence length."""
    figure, axes = _figure(title)
    lines: dict[str, list[tuple[int, float, str]]] = {}
    for problem in problems:
        seen: set[str] = set()
        for m in problem.ranked:  # fastest first
            provider = m.row.provider
            if provider not in seen:
                seen.add(provider)
                label = "ours, the best" if m.is_ours else m.label
                point = (problem.seq_len, value(m), label)
                lines.setdefault(provider, []).append(point)
    for provider, points in sorted(lines.items(), key=lambda item: -max(p[1] for p in item[1])):
        points.sort()
        axes.plot(
            [p[0] for p in points], [p[1] for p in points], label=points[0][2],
            color=_COLOURS.get(provider), marker=_MARKERS.get(provider, "x"), markersize=5,
            linewidth=2.4 if provider == "ours" else 1.6,
        )  # fmt: skip
    lengths = sorted({problem.seq_len for problem in problems})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    if log:
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis, (1.0, 2.0, 5.0))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("sequence length")
    axes.set_ylabel(y_label)
    _legend(figure, axes, legend)
    return _png(figure)


def roofline(measurements: Sequence[Measurement], ceilings: Ceilings, title: str) -> bytes:
    """Every kernel as a point under the ceilings: FLOP of the two matmuls over the bytes of Q, K
    and V read once and O written once (what crosses the device memory if L2 serves the rest)."""
    figure, axes = _figure(title)
    points = [(m.intensity, m.matmul_tflops, m) for m in measurements]
    peak, bandwidth = ceilings.peak, ceilings.bandwidth
    low = min(peak / bandwidth / 8, *(x for x, _, _ in points))
    high = max(peak / bandwidth, *(x for x, _, _ in points)) * 2
    corner = peak / bandwidth
    axes.plot([low, corner, high], [low * bandwidth, peak, peak], color="#444444", linewidth=1.6)
    for _, lower in ceilings.peaks[1:]:
        axes.plot([lower / bandwidth, high], [lower, lower], color="#444444", linewidth=0.8)
    label = "\n".join(f"{name}: {value:.0f} TFLOP/s" for name, value in ceilings.peaks)
    axes.annotate(label, (high, peak), ha="right", va="bottom", fontsize=8.5,
                  xytext=(0, 2), textcoords="offset points")  # fmt: skip
    name, value = ceilings.bandwidths[0]
    place = (1.3 * low, 1.3 * low * bandwidth)
    axes.annotate(f"{name}:\n{value:.2f} TB/s", place, ha="left", va="center", fontsize=8.5,
                  xytext=(8, -3), textcoords="offset points")  # fmt: skip
    providers = {m.row.provider: "ours" if m.is_ours else m.label for m in reversed(measurements)}
    # Ours are many: they go below the references.
    for provider in sorted(providers, key=lambda name: (name != "ours", name)):
        mine = [(x, y) for x, y, m in points if m.row.provider == provider]
        axes.scatter(
            *zip(*mine, strict=True), s=18, alpha=0.75, label=providers[provider],
            color=_COLOURS.get(provider), marker=_MARKERS.get(provider, "x"),
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=peak * 1.6)
    _plain_numbers(axes.xaxis, (1.0,))
    _plain_numbers(axes.yaxis, (1.0, 2.0, 5.0))
    axes.set_xlabel("FLOP per byte of Q, K, V and O")
    axes.set_ylabel("TFLOP/s of the two matmuls")
    _legend(figure, axes, "lower right")
    return _png(figure)


def tuned_roofline(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]],
    roof: tuple[float, float],
) -> bytes:  # fmt: skip
    """(FLOP a byte, TFLOP/s) by shape before and after tuning, joined by arrows, under the roof
    of so many TFLOP/s and TB/s."""
    figure, axes = _figure("v1 and tuned, under the roofline")
    (peak, bandwidth), points = roof, [*before.values(), *after.values()]
    low, high = (f(peak / bandwidth, *(x for x, _ in points)) for f in (min, max))
    ends = [low / 4, peak / bandwidth, high * 2]
    axes.plot(ends, [min(peak, x * bandwidth) for x in ends], color="#444444", linewidth=1.6)
    for found, colour, label in ((before, _OURS, "v1"), (after, "#009e73", "v_auto")):
        axes.scatter(*zip(*found.values(), strict=True), color=colour, label=label, zorder=3)
    for shape in before.keys() & after.keys():
        axes.annotate("", after[shape], before[shape], arrowprops={"arrowstyle": "->"})
    axes.loglog()
    axes.set_xlabel("FLOP per byte")
    axes.set_ylabel("TFLOP/s")
    _legend(figure, axes, "lower right")
    return _png(figure)


def over_sizes(
    curves: Mapping[str, Sequence[tuple[int, float]]], best: Mapping[str, int], y_label: str
) -> bytes:
    """(bytes that have to move, speed) by name, joined to a curve; a ring marks the size that
    `best` names."""
    figure, axes = _figure("speed over size")
    for (name, points), marker in zip(curves.items(), itertools.cycle("osv^DPX")):
        (line,) = axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, label=name)
        ring = best[name], dict(points)[best[name]]
        axes.plot(*ring, marker="o", markersize=12, fillstyle="none", color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bytes that have to move; ring: the best working point")
    axes.set_ylabel(y_label)
    _legend(figure, axes, "lower right")
    return _png(figure)


def switches(found: Sequence[Worth], title: str) -> bytes:
    """What every switch does to the time: the mean, and all pairs as dots."""
    figure, axes = _figure(title, height=0.42 * len(found) + 1.2)
    for row, worth in enumerate(reversed(found)):
        change = [100 * (ratio - 1) for ratio in worth.ratios]
        middle = 100 * (worth.middle - 1)
        axes.barh(row, middle, color=_OURS if middle < 0 else "#d55e00", height=0.55, alpha=0.85)
        axes.scatter(change, [row] * len(change), s=6, color="#222222", alpha=0.35, zorder=3)
    axes.set_yticks(range(len(found)), [worth.label() for worth in reversed(found)], fontsize=8.5)
    axes.axvline(0, color="#444444", linewidth=1)
    axes.set_xlabel("change of the time in % (left: faster)")
    return _png(figure)


def _plain_numbers(axis: Any, steps: Sequence[float]) -> None:
    """On a logarithmic axis: 0.5 instead of 5 × 10⁻¹, at these multiples of powers of ten."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _legend(figure: Any, axes: Any, place: str) -> None:
    """Many names would hide the lines: they go below the axes."""
    n = len(axes.get_legend_handles_labels()[1])
    if n <= _NAMES_INSIDE:
        axes.legend(frameon=False, loc=place)
        return
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-n // _NAMES_A_LINE) + 0.1)
    figure.legend(
        loc="outside lower center", ncols=_NAMES_A_LINE, frameon=False, fontsize=8.5,
        columnspacing=1.2,
    )  # fmt: skip


def _figure(title: str, height: float = 3.7) -> tuple[Any, Any]:
    # Not pyplot: it keeps state, and picks a window system.
    from matplotlib.figure import Figure

    # Narrow, so that the letters can still be read where a phone shows it at 350 pixels.
    figure = Figure(figsize=(5.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.tick_params(labelsize=9)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure: Any) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    data = io.BytesIO()
    FigureCanvasAgg(figure)
    # No date and no version: the same results give the same file.
    figure.savefig(data, format="png", dpi=200, metadata={"Software": None})
    return data.getvalue()


def measured_and_predicted(
    x: Sequence[float], measured: Sequence[float], predicted: Mapping[str, Sequence[float]],
    title: str, x_label: str, y_label: str,
) -> bytes:  # fmt: skip
    """Dots for what was measured, lines for what models say, over the same points: the first one
    in front."""
    figure, axes = _figure(title)
    axes.scatter(x, measured, s=9, color="#d55e00", label="measured", linewidths=0, zorder=2)
    colours = (_OURS, "#56b4e9")
    for number, (label, values) in enumerate(predicted.items()):
        axes.plot(x, values, color=colours[number], linewidth=1.3, label=label, zorder=4 - number)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False, loc="lower right")
    return _png(figure)
