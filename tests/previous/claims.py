"""What a step says its machine code shows (`shows` in steps.toml), checked against the step before.

A claim counts something in both kernels and says how the two numbers relate:

    count    instruction classes or opcodes between `+` (classes.count_matching)
    runs     two opcodes: how often code turns from the first to the second
    where    loop (the main loop, default), kernel (all of it), or ptx (nvcc's output)
    between  two patterns: only what stands from the first of the one to the next of the other
    change   the difference to the step before: a number, or [least, most]
    ratio    the quotient to the step before, [least, most]
    value    the number itself: a number, or [least, most]
    identical = true    instead of all that: the same instructions as the step before
    registers           instead of `count`: registers per thread, with change, ratio or value
    per                 count per so many of these (a quotient instead of a number)
    arch                only there: ptxas decides differently for others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flash_helpers.kernels.family import Step
from flash_helpers.kernels.history import load_steps
from flash_lab.sass.classes import count_matching
from flash_lab.sass.compare import Comparison
from flash_lab.sass.listing import Instruction
from flash_lab.sass.steps import Program

_KEYS = {
    "count", "runs", "where", "between", "change", "ratio", "value", "identical", "registers",
    "per", "arch",
}  # fmt: skip
_RELATIONS = ("change", "ratio", "value")


@dataclass(frozen=True)
class Verdict:
    claim: str
    before: float
    after: float
    holds: bool

    def __str__(self) -> str:
        word = "holds" if self.holds else "DOES NOT HOLD"
        return f"{self.claim}: {self.before:g} -> {self.after:g}: {word}"


@dataclass(frozen=True)
class StepVerdict:
    step: Step
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)


def check_steps(found: Sequence[Program]) -> list[StepVerdict]:
    """Every step but the first against the one before."""
    results = []
    for step, before, after in zip(load_steps()[1:], found, found[1:], strict=False):
        mine = [claim for claim in step.shows if applies(claim, after)]
        verdicts = tuple(check_claim(claim, before, after) for claim in mine)
        results.append(StepVerdict(step, verdicts))
    return results


def check_claim(claim: Mapping[str, Any], before: Program, after: Program) -> Verdict:
    """ValueError if the claim is not one."""
    unknown = set(claim) - _KEYS
    if unknown:
        raise ValueError(f"a claim has no {', '.join(sorted(unknown))}: {dict(claim)}")
    if claim.get("identical"):
        same = Comparison(before.listing, after.listing, "kernel").identical
        lengths = [float(len(p.listing.instructions)) for p in (before, after)]
        return Verdict("identical machine code", lengths[0], lengths[1], same)
    if not applies(claim, after):
        raise ValueError(f"the claim is about {claim['arch']}: {dict(claim)}")
    measured = [_measure(claim, program) for program in (before, after)]
    return Verdict(describe(claim), measured[0], measured[1], _relates(claim, *measured))


def applies(claim: Mapping[str, Any], program: Program) -> bool:
    return bool(claim.get("arch", program.listing.architecture) == program.listing.architecture)


def describe(claim: Mapping[str, Any]) -> str:
    what = claim.get("count") or " to ".join(claim.get("runs", ())) or "registers"
    per = f" per {claim['per']}" if "per" in claim else ""
    where = claim.get("where", "loop")
    between = " from {} to {}".format(*claim["between"]) if "between" in claim else ""
    relations = ", ".join(f"{name} {claim[name]}" for name in _RELATIONS if name in claim)
    return f"{what}{per} in the {where}{between}, {relations}"


def _measure(claim: Mapping[str, Any], program: Program) -> float:
    if claim.get("registers"):
        return program.registers
    where = claim.get("where", "loop")
    if where == "ptx":
        return _measure_ptx(claim, program.opcodes())
    part: Sequence[Instruction] = program.listing.part(where)
    if "between" in claim:
        part = _between(part, *claim["between"])
    if "runs" in claim:
        first, second = claim["runs"]
        return _turns(part, lambda i: i.matches(first), lambda i: i.matches(second))
    number = float(count_matching(part, claim["count"]))
    return number / count_matching(part, claim["per"]) if "per" in claim else number


def _measure_ptx(claim: Mapping[str, Any], opcodes: Sequence[str]) -> float:
    if "runs" in claim:
        first, second = claim["runs"]
        return _turns(opcodes, lambda x: x.startswith(first), lambda x: x.startswith(second))
    return sum(opcode.startswith(claim["count"]) for opcode in opcodes)


def _turns(
    items: Sequence[Any], is_first: Callable[[Any], Any], is_second: Callable[[Any], Any]
) -> float:
    """How often a first is followed, sooner or later, by a second."""
    turns, waiting = 0, False
    for item in items:
        if is_first(item):
            waiting = True
        elif waiting and is_second(item):
            turns, waiting = turns + 1, False
    return turns


def _between(part: Sequence[Instruction], first: str, last: str) -> Sequence[Instruction]:
    begin = next((n for n, i in enumerate(part) if i.matches(first)), None)
    if begin is None:
        raise ValueError(f"there is no {first} to begin with")
    length = next((n for n, i in enumerate(part[begin:]) if i.matches(last)), None)
    if length is None:
        raise ValueError(f"no {last} follows the first {first}")
    return part[begin : begin + length]


def _relates(claim: Mapping[str, Any], before: float, after: float) -> bool:
    named = [name for name in _RELATIONS if name in claim]
    if not named:
        raise ValueError(f"a claim needs one of {', '.join(_RELATIONS)}: {dict(claim)}")
    values = {
        "change": after - before,
        "ratio": after / before if before else float("inf"),
        "value": after,
    }
    return all(_within(claim[name], values[name]) for name in named)


def _within(bounds: float | Sequence[float], value: float) -> bool:
    if isinstance(bounds, (int, float)):
        return value == bounds
    least, most = bounds
    return least <= value <= most
