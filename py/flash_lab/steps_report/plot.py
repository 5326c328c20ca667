"""The road as a picture: percent of FlashAttention-2, step by step, here and in the predecessor."""

import io
from collections.abc import Sequence
from typing import Any

from .data import HEADLINE_LENGTH, StepFacts

_LINES = (
    ("a100", "predecessor, A100", "#e69f00", "^"),
    ("rtx3090", "predecessor, RTX 3090", "#009e73", "D"),
)


def draw(facts: Sequence[StepFacts], gpu: str) -> bytes:
    """An SVG; the same figures give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    numbers = [f.step.number for f in facts]
    with matplotlib.rc_context({"svg.hashsalt": "steps", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 5.2), layout="constrained")
        axes = figure.add_subplot()
        here = [f.speed.percent() for f in facts if f.speed]
        means = [f.speed.harmonic_percent for f in facts if f.speed]
        for key, label, colour, marker in _LINES:
            theirs = [f.step.fa2[key] for f in facts]
            axes.plot(numbers, theirs, label=label, color=colour, marker=marker, linewidth=1.2,
                      markersize=4, alpha=0.8)  # fmt: skip
        axes.plot(numbers, means, label=f"{gpu}, harmonic mean of all lengths", color="#56b4e9",
                  linewidth=1.4, linestyle="--")  # fmt: skip
        axes.plot(numbers, here, label=f"{gpu}, sequence {HEADLINE_LENGTH}", color="#0072b2",
                  marker="o", linewidth=2.4)  # fmt: skip
        for number, value in zip(numbers, here, strict=True):
            axes.annotate(f"{value:.0f}", (number, value), textcoords="offset points",
                          xytext=(0, 7), ha="center", fontsize=8)  # fmt: skip
        _finish(axes, facts)
        data = io.BytesIO()
        figure.savefig(data, format="svg", metadata={"Date": None, "Creator": None})
    return data.getvalue()


def _finish(axes: Any, facts: Sequence[StepFacts]) -> None:
    axes.set_title("The sixteen steps, in percent of FlashAttention-2", loc="left", fontsize=11)
    axes.set_xticks(
        [f.step.number for f in facts],
        [f"{f.step.number} {f.step.title}" for f in facts],
        rotation=35, ha="right", fontsize=8,
    )  # fmt: skip
    axes.axhline(100, color="#444444", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("% of FlashAttention-2")
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
