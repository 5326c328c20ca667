"""Changes of one word: operators, constants, names, phases, inline assembly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .header import Edit, Header

OPERATORS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", "&": "|", "|": "&", "^": "|",
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+=": "-=", "-=": "+=", "*=": "+=", "^=": "|=", "++": "--", "--": "++",
}  # fmt: skip
_ALONE = {"++", "--"}  # no spaces around them
NAMES = {
    "true": "false", "false": "true", "min": "max", "max": "min", "fmaxf": "fminf",
    "fminf": "fmaxf", "int64_t": "int", "uint64_t": "uint32_t", "kFP16": "kBF16",
}  # fmt: skip
NARROWED = {"int64_t", "uint64_t"}
# Parts of names that are taken for each other, where the other name stands in the same file.
_CONFUSED = (
    ("k", "v"), ("q", "k"), ("K", "V"), ("full", "empty"), ("rows", "row"), ("first", "last"),
    ("sum", "max"), ("whole", "blocks"), ("batch", "head"), ("batch", "seq"), ("any", "all"),
    ("kv", "q"), ("low", "high"), ("left", "right"), ("row", "column"), ("lane", "warp"),
)  # fmt: skip
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])|_")  # of k_ring, kKOffset
_PLAIN_NUMBER = re.compile(r"(\d+)([uUlL]*)")


def operators(header: Header) -> Iterator[Edit]:
    for i in header.code:
        token = header.tokens[i]
        is_binary = token.kind == "operator" and (token.spaced or token.text in _ALONE)
        if is_binary and (other := OPERATORS.get(token.text)):
            yield Edit("operator", token.start, token.end, other)


def negations(header: Header) -> Iterator[Edit]:
    """`!` left out."""
    for i in header.code:
        token = header.tokens[i]
        if token.text == "!":
            yield Edit("negation dropped", token.start, token.end, "")


def constants(header: Header) -> Iterator[Edit]:
    """One more, one less, twice; of a mask of lanes, half; of a fraction, twice."""
    for i in header.code:
        token = header.tokens[i]
        if token.kind != "number":
            continue
        for text in _other_numbers(token.text):
            yield Edit("constant", token.start, token.end, text)


def _other_numbers(text: str) -> Iterator[str]:
    if match := _PLAIN_NUMBER.fullmatch(text):
        number = int(match[1])
        others = {number + 1, number - 1, 2 * number} - {number, -1}
        yield from (f"{other}{match[2]}" for other in sorted(others))
    elif text.lower().startswith("0xffffffff"):
        yield "0x0000ffffu"
    elif "." in text:
        value, suffix = text.rstrip("fF"), "f" if text[-1] in "fF" else ""
        yield f"{2 * float(value) if float(value) else 1.0!r}{suffix}"


def names(header: Header) -> Iterator[Edit]:
    """A name taken for one like it, a narrower type, the other of true and false."""
    known = {token.text for token in header.tokens if token.kind == "name"}
    for i in header.code:
        token = header.tokens[i]
        if token.kind != "name":
            continue
        if other := NAMES.get(token.text):
            kind = "narrowed" if token.text in NARROWED else "name"
            yield Edit(kind, token.start, token.end, other)
        for other in _confusions(token.text):
            if other in known:
                yield Edit("name", token.start, token.end, other)


def _confusions(name: str) -> Iterator[str]:
    parts = _PARTS.findall(name)
    for a, b in _CONFUSED:
        for one, other in ((a, b), (b, a)):
            for i, part in enumerate(parts):
                if part == one:
                    yield "".join([*parts[:i], other, *parts[i + 1 :]])


def phases(header: Header) -> Iterator[Edit]:
    """A parity that is waited for, the other one."""
    for i in header.code[:-1]:
        token, behind = header.tokens[i], header.tokens[i + 1]
        if token.text == "parity" and behind.text in ")," and header.tokens[i - 1].text == ".":
            yield Edit("phase", token.start, token.end, "parity ^ 1")


def assembly(header: Header) -> Iterator[Edit]:
    """In inline assembly: two neighbouring operands exchanged, a modifier left out, 0 for 1."""
    for token in header.tokens:
        if token.kind != "string" or ("%" not in token.text and "." not in token.text):
            continue
        for match in re.finditer(r"(%\d+), (?=(%\d+))", token.text):
            start = token.start + match.start()
            text = f"{match[2]}, {match[1]}"
            yield Edit("operands swapped", start, start + len(text), text)
        for match in re.finditer(
            r"\.(?:trans|read|release|acquire|noinc|L2::\w+|volatile)\b", token.text
        ):
            start = token.start + match.start()
            yield Edit("modifier dropped", start, start + len(match[0]), "")
        for match in re.finditer(r"selp\.b32 %0, 1, 0", token.text):
            start = token.start + match.start()
            yield Edit("operands swapped", start, start + len(match[0]), "selp.b32 %0, 0, 1")
