"""A flame graph as one SVG file that needs nothing else: every frame is a box as wide as its time,
on the frame that called it; the browser shows the whole name and the time where the mouse is."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from .stacks import GPU_TIME, Stack

_WIDTH, _ROW, _MARGIN, _TOP = 1200.0, 18, 10, 48
_FONT, _CHARACTER = 11, 6.7  # pixels: of the letters, and what one of them takes
_THINNEST = 0.4  # pixels; thinner boxes are left out
_LONGEST_TITLE = 300

# Hue ranges and lightness: told apart by colour and, since colours are not for everyone, by name.
_KINDS = (
    ("Python", (38, 58), 68),
    ("operation or range", (200, 220), 74),
    ("kernel", (95, 140), 70),
)
_PYTHON, _OPERATION, _KERNEL = _KINDS


@dataclass
class _Frame:
    """`nanoseconds`: its own and those of everything above it."""

    name: str
    nanoseconds: int = 0
    above: dict[str, _Frame] = field(default_factory=dict)


def flame_graph(stacks: Mapping[Stack, int], title: str, what: str) -> str:
    """`stacks`: nanoseconds by stack, outermost frame first; `what` the numbers are, GPU_TIME or
    CPU_TIME. Raises ValueError if there are none."""
    whole = _tree(stacks)
    if whole.nanoseconds <= 0:
        raise ValueError("there is nothing to draw: no stack has a time")
    boxes: list[str] = []
    scale = (_WIDTH - 2 * _MARGIN) / whole.nanoseconds
    drawn = _Drawing(scale, whole.nanoseconds, _depth(whole, _THINNEST / scale), what)
    left = float(_MARGIN)
    for frame in _ordered(whole):
        drawn.add(frame, left, 0, boxes)
        left += frame.nanoseconds * scale
    height = _TOP + drawn.levels * _ROW + 2 * _MARGIN
    subtitle = f"{_time(whole.nanoseconds)} of {what}; a box is as wide as its time"
    if drawn.hidden:
        share = drawn.hidden / whole.nanoseconds
        subtitle += f"; boxes thinner than {_THINNEST} pixels are left out ({share:.1%})"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height}" '
        f'width="{_WIDTH:.0f}" height="{height}" font-family="ui-monospace, Menlo, Consolas, '
        f'monospace" font-size="{_FONT}">\n'
        f"<title>{escape(title)}</title>\n"
        "<style>rect { stroke: #fff; stroke-width: .6 } g:hover > rect { stroke: #000 } "
        "text { pointer-events: none }</style>\n"
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="{_MARGIN}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>\n'
        f'<text x="{_MARGIN}" y="38" fill="#444">{escape(subtitle)}</text>\n{_legend()}'
    )
    return head + "\n".join(boxes) + "\n</svg>\n"


def _tree(stacks: Mapping[Stack, int]) -> _Frame:
    whole = _Frame("")
    for stack, nanoseconds in stacks.items():
        whole.nanoseconds += nanoseconds
        frame = whole
        for name in stack:
            frame = frame.above.setdefault(name, _Frame(name))
            frame.nanoseconds += nanoseconds
    return whole


def _ordered(frame: _Frame) -> list[_Frame]:
    """By name, so that two graphs of the same program can be compared."""
    return [frame.above[name] for name in sorted(frame.above)]


def _depth(frame: _Frame, least: float) -> int:
    """How many frames that take at least so many nanoseconds stand above it."""
    shown = (above for above in frame.above.values() if above.nanoseconds >= least)
    return max((1 + _depth(above, least) for above in shown), default=0)


@dataclass
class _Drawing:
    scale: float  # pixels a nanosecond
    whole: int
    levels: int
    what: str
    hidden: int = 0  # nanoseconds in boxes that are too thin

    def add(self, frame: _Frame, left: float, level: int, boxes: list[str]) -> None:
        width = frame.nanoseconds * self.scale
        if width < _THINNEST:
            self.hidden += frame.nanoseconds
            return
        boxes.append(self._box(frame, left, width, level))
        for above in _ordered(frame):
            self.add(above, left, level + 1, boxes)
            left += above.nanoseconds * self.scale

    def _box(self, frame: _Frame, left: float, width: float, level: int) -> str:
        top = _TOP + _MARGIN + (self.levels - 1 - level) * _ROW
        share = frame.nanoseconds / self.whole
        name = frame.name[:_LONGEST_TITLE]
        title = f"{name}: {_time(frame.nanoseconds)} of {self.what}, {share:.1%}"
        kind = _KERNEL if not frame.above and self.what == GPU_TIME else _kind(frame.name)
        text = _shortened(frame.name, int((width - 6) / _CHARACTER))
        label = (
            f'<text x="{left + 3:.2f}" y="{top + 12.5:.1f}">{escape(text)}</text>' if text else ""
        )
        return (
            f"<g><title>{escape(title)}</title>"
            f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_ROW - 1}" rx="1.5" '
            f'fill="{_colour(frame.name, kind)}"/>{label}</g>'
        )


_Kind = tuple[str, tuple[int, int], int]


def _kind(name: str) -> _Kind:
    is_python = ".py(" in name or "(built-in)" in name or name.startswith("nn.Module")
    return _PYTHON if is_python else _OPERATION


def _colour(name: str, kind: _Kind) -> str:
    """The colour of the kind, a little different for every name, and the same in every graph."""
    _, (low, high), lightness = kind
    chance = zlib.crc32(name.encode())
    hue = low + chance % (high - low)
    return f"hsl({hue},{70 + chance // 7 % 20}%,{lightness + chance // 131 % 10}%)"


def _shortened(name: str, characters: int) -> str:
    """The beginning, or of a Python frame `function (file.py:12)` as much as fits."""
    path, found, function = name.partition("): ")
    if found and ".py(" in path:
        file, _, line = path.rpartition("(")
        name = f"{function} ({file.rpartition('/')[2]}:{line})"
    if len(name) <= characters:
        return name
    return f"{name[: characters - 1]}…" if characters >= 4 else ""


def _legend() -> str:
    parts: list[str] = []
    left = _WIDTH - _MARGIN - 310
    for kind in _KINDS:
        parts.append(
            f'<rect x="{left:.0f}" y="11" width="12" height="12" '
            f'fill="{_colour("", kind)}"/><text x="{left + 17:.0f}" y="21">{kind[0]}</text>\n'
        )
        left += 40 + _CHARACTER * len(kind[0])
    return "".join(parts)


def _time(nanoseconds: int) -> str:
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"
