"""Draws problems of several kinds until the time is over, and tells which went wrong; what
random_calls.py and random_operators.py have in common."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from .random_problems import Draw

# Checks a problem that it draws: the worst error in units of what is allowed.
Kind = Callable[[Draw], float]


@dataclass(frozen=True)
class Kinds:
    """By name; `longest`: what lengths there are on a device; `around`: each problem."""

    of: Mapping[str, Kind]
    longest: Mapping[str, int]
    around: Callable[[], AbstractContextManager[object]] = nullcontext

    def outcome(self, kind: str, seed: int, number: int, device: str) -> tuple[float, str]:
        """Of a problem that is drawn: its worst error, and what is wrong, or an empty string."""
        torch.manual_seed(seed * 1_000_003 + number)
        draw = Draw(random.Random(f"{seed} {kind} {number}"), device, self.longest[device])
        try:
            with self.around():
                worst = self.of[kind](draw)
                if device == "cuda":
                    torch.cuda.synchronize()
            problem = "" if worst <= 1 else f"the worst has {worst:.3g} of the allowed error"
        except Exception:  # whatever it is, it is told, and the next problem drawn
            worst, problem = 0.0, "\n    ".join(traceback.format_exc().strip().splitlines()[-6:])
        told = "; ".join(draw.told)
        return worst, problem and f"{kind} {number} of seed {seed}: {told}\n    {problem}"


def run(kinds: Kinds, description: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command line: its exit code."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seconds", type=float)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[*kinds.of])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--number", type=int, help="of one problem of each kind, alone")
    parser.add_argument("--device", choices=tuple(kinds.longest), default="cuda")
    options = parser.parse_args(arguments)
    if unknown := set(options.kinds) - set(kinds.of):
        parser.error(f"no kind {', '.join(sorted(unknown))}: there are {', '.join(kinds.of)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU is here: nothing was called", file=sys.stderr)
        return 4
    end, number = time.monotonic() + options.seconds, options.number or 0
    done, failed, worst = Counter[str](), 0, 0.0
    while not done or (options.number is None and time.monotonic() < end):
        for kind in options.kinds:
            of_this, problem = kinds.outcome(kind, options.seed, number, options.device)
            done[kind], worst = done[kind] + 1, max(worst, of_this)
            if problem:
                failed += 1
                print(problem, flush=True)
        number += 1
    counts = ", ".join(f"{kind} {n}" for kind, n in done.items())
    print(f"seed {options.seed}: {counts}; {failed} failed; the worst has {worst:.3f}")
    return 1 if failed else 0
