"""The page in Markdown: the figures. The text stands in previous_kernels/README.md.jinja."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flash_helpers.base.paths import previous_dir
from flash_helpers.codegen.render import load_template

from .data import HEADLINE_LENGTH, StepFacts

TEMPLATE = "README.md.jinja"
_NOISE_PERCENT = 1.0  # differences below are called none
_LARGEST = 3


@dataclass(frozen=True)
class Note:
    """What the page says about one step beside its prose."""

    facts: StepFacts
    machine_code: str
    counters: str
    gain: str


def render_page(facts: Sequence[StepFacts], where: Mapping[str, str]) -> str:
    """`where`: what the template says about the measurement (empty: none was made)."""
    measured = all(f.speed is not None for f in facts)
    return load_template(previous_dir(), TEMPLATE).render(
        rows=table(facts),
        notes=notes(facts),
        where=where,
        measured=measured,
        profiled=all(f.counters for f in facts),
        largest=largest_gains(facts) if measured else [],
        final=final(facts) if measured else "",
        noise=identical_difference(facts) if measured else "",
    )


def table(facts: Sequence[StepFacts]) -> str:
    """A Markdown table: what is not there has no column."""
    heads = ["step", "title"]
    measured = all(f.speed is not None for f in facts)
    profiled = all(f.counters for f in facts)
    if measured:
        heads += [f"TFLOP/s at {HEADLINE_LENGTH}", "gain", "of FlashAttention-2"]
        heads += ["harmonic mean", "of FlashAttention-2's"]
    heads += ["predecessor A100, 3090", "registers", "loop instructions", "moves", "integer"]
    if profiled:
        heads += ["executed (10⁶)", "bank conflicts per LDSM", "tensor pipe"]
    befores = [None, *facts]
    rows = [_row(*pair, measured, profiled) for pair in zip(facts, befores, strict=False)]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(f: StepFacts, before: StepFacts | None, measured: bool, profiled: bool) -> list[str]:
    cells = [str(f.step.number), f.step.title]
    if measured and f.speed:
        gain = f.gain(before) if before else None
        shown = "" if gain is None else f"{gain:+.1f} %"
        cells += [f"{f.speed.tflops[HEADLINE_LENGTH]:.0f}", shown]
        cells += [f"{f.speed.percent():.1f} %", f"{f.speed.harmonic_mean:.0f}"]
        cells += [f"{f.speed.harmonic_percent:.1f} %"]
    cells += [f"{f.step.fa2['a100']}, {f.step.fa2['rtx3090']}", str(f.code.registers)]
    cells += [str(f.code.loop), str(f.code.classes["move"]), str(f.code.classes["integer"])]
    if profiled:
        cells += [f"{f.counters['instructions'] / 1e6:.2f}", f"{conflicts_per_load(f):.2f}"]
        cells += [f"{f.counters['tensor pipe %']:.0f} %"]
    return cells


def conflicts_per_load(f: StepFacts) -> float:
    """Extra wavefronts for each LDSM executed: an LDSM.x4 needs 4, and without swizzle takes 32."""
    return f.counters["load conflicts"] / f.counters["ldmatrix"]


def notes(facts: Sequence[StepFacts]) -> list[Note]:
    code = facts[0].code
    counts = ", ".join(f"{n} {name}" for name, n in code.classes.items() if n)
    size = f"{code.loop} instructions in the loop ({counts}), {code.registers} registers"
    found = [Note(facts[0], size, "", "")]
    for pair in pairwise(facts):
        found.append(Note(pair[1], _code_change(*pair), _counter_change(*pair), _gains(*pair)))
    return found


def _code_change(before: StepFacts, after: StepFacts) -> str:
    was, now = before.code, after.code
    if (was.loop, was.registers, was.instructions) == (now.loop, now.registers, now.instructions):
        return f"{now.loop} instructions in the loop and {now.registers} registers, as before"
    changes = [(name, now.classes[name] - was.classes[name]) for name in now.classes]
    largest = sorted((c for c in changes if c[1]), key=lambda c: -abs(c[1]))[:4]
    told = ", ".join(f"{name} {difference:+d}" for name, difference in largest)
    parts = [f"loop {was.loop} → {now.loop} instructions" + (f" ({told})" if told else "")]
    parts.append(f"kernel {was.instructions} → {now.instructions}")
    parts.append(f"registers {was.registers} → {now.registers}")
    return ", ".join(parts)


def _counter_change(before: StepFacts, after: StepFacts) -> str:
    if not (before.counters and after.counters):
        return ""
    was, now = before.counters, after.counters
    executed = 100 * (now["instructions"] / was["instructions"] - 1)
    return (
        f"{executed:+.1f} % instructions executed, bank conflicts per LDSM "
        f"{conflicts_per_load(before):.2f} → {conflicts_per_load(after):.2f}, tensor pipe "
        f"{was['tensor pipe %']:.0f} % → {now['tensor pipe %']:.0f} %, occupancy "
        f"{was['occupancy %']:.0f} % → {now['occupancy %']:.0f} %"
    )


def _gains(before: StepFacts, after: StepFacts) -> str:
    theirs = ", ".join(
        f"{after.predecessor_gain(before, gpu):+.1f} % ({name})"
        for gpu, name in (("a100", "A100"), ("rtx3090", "RTX 3090"))
    )
    gain = after.gain(before)
    if gain is None:
        return f"in the predecessor {theirs}"
    word = "no gain" if abs(gain) < _NOISE_PERCENT else "a gain" if gain > 0 else "a loss"
    mean = ""
    if before.speed and after.speed:
        change = 100 * (after.speed.harmonic_mean / before.speed.harmonic_mean - 1)
        mean = f" (harmonic mean {change:+.1f} %)"
    return f"{gain:+.1f} %{mean}: {word}; in the predecessor {theirs}"


def largest_gains(facts: Sequence[StepFacts]) -> list[str]:
    """The steps that helped most, with what ncu counts."""
    pairs = [(after.gain(before) or 0.0, before, after) for before, after in pairwise(facts)]
    pairs.sort(key=lambda pair: -pair[0])
    lines = []
    for gain, before, after in pairs[:_LARGEST]:
        counted = _counter_change(before, after) or _code_change(before, after)
        lines.append(
            f"**Step {after.step.number}, {after.step.title}: {gain:+.1f} %.** {counted}. "
            f"{after.step.why}"
        )
    return lines


def final(facts: Sequence[StepFacts]) -> str:
    first, last = facts[0].speed, facts[-1].speed
    assert first and last
    ratio = last.tflops[HEADLINE_LENGTH] / first.tflops[HEADLINE_LENGTH]
    mean = last.harmonic_mean / first.harmonic_mean
    return (
        f"{ratio:.2f} times step 1 at sequence {HEADLINE_LENGTH}, {mean:.2f} times by harmonic mean"
    )


def identical_difference(facts: Sequence[StepFacts]) -> str:
    """Steps 4 and 5 are one machine code: what differs between them is the measurement's noise."""
    return f"{facts[4].gain(facts[3]):+.1f} %"
