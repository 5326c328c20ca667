"""Changes of conditions, arguments and statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from .header import Edit, Header
from .tokens import CLOSING, Statement, Token, matching

_NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "alignas", "static_assert"}
COMMUTATIVE = {"min", "max", "fminf", "fmaxf", "mul_rn", "fma_rn"}  # in their first two arguments
_ASSIGNS = {"=", "+=", "-=", "*=", "^=", "|=", "++", "--"}
_DECLARES = {
    "using", "const", "constexpr", "static", "inline", "typename", "struct", "enum", "namespace",
    "template", "static_assert", "return", "extern", "FLASH_DEVICE", "explicit", "asm", "case",
}  # fmt: skip


def conditions(header: Header) -> Iterator[Edit]:
    """The condition of an `if`, `if constexpr` or `while`, negated."""
    for i in header.code:
        if header.tokens[i].text not in ("if", "while"):
            continue
        opening = i + 1 + (header.tokens[i + 1].text == "constexpr")
        closing = matching(header.tokens, opening)
        start, end = header.tokens[opening].end, header.tokens[closing].start
        yield Edit("condition negated", start, end, f"!({header.source[start:end]})")


def arms(header: Header) -> Iterator[Edit]:
    """The two results of `condition ? a : b`, exchanged."""
    for i in header.code:
        if header.tokens[i].text != "?":
            continue
        colon = _level(header.tokens, i + 1, (":",))
        end = _level(header.tokens, colon + 1, (";", ",")) - 1
        first = header.text(i + 1, colon - 1)
        second = header.text(colon + 1, end)
        between = header.source[header.tokens[colon - 1].end : header.tokens[colon + 1].start]
        start = header.tokens[i + 1].start
        yield Edit("arms swapped", start, header.tokens[end].end, second + between + first)


def _level(tokens: Sequence[Token], i: int, wanted: tuple[str, ...]) -> int:
    """The next of `wanted` that no bracket or other `?` encloses, or the bracket that ends all."""
    questions = 0
    while tokens[i].text not in CLOSING.values():
        if tokens[i].text in wanted and not questions:
            return i
        if tokens[i].text in CLOSING:
            i = matching(tokens, i)
        elif tokens[i].text == "?":
            questions += 1
        elif tokens[i].text == ":" and questions:
            questions -= 1
        i += 1
    return i


def deletions(header: Header) -> Iterator[Edit]:
    """A call, an assignment, an early end left out."""
    for statement in header.statements:
        if _does_something(header, statement):
            first, last = header.tokens[statement.first], header.tokens[statement.last]
            # The body of an `if` or a loop stays one, and is empty.
            end = last.start if statement.index < 0 else last.end
            yield Edit("deleted", first.start, end, "")


def exchanges(header: Header) -> Iterator[Edit]:
    """Two statements that follow each other, in the other order."""
    by_place = {(s.block, s.index): s for s in header.statements if s.index >= 0}
    for (block, index), first in by_place.items():
        second = by_place.get((block, index + 1))
        if second is None or second.first != first.last + 1:
            continue
        if not all(_does_something(header, one, ends=False) for one in (first, second)):
            continue
        texts = [header.text(one.first, one.last) for one in (first, second)]
        start, end = header.tokens[first.first].start, header.tokens[second.last].end
        middle = header.source[header.tokens[first.last].end : header.tokens[second.first].start]
        if texts[0] != texts[1]:
            yield Edit("order swapped", start, end, texts[1] + middle + texts[0])


def _does_something(header: Header, statement: Statement, ends: bool = True) -> bool:
    """Whether it is an expression and not a declaration; `ends`: or a return, break, continue
    without a value."""
    tokens = header.tokens[statement.first : statement.last]
    if not tokens:
        return False
    if len(tokens) == 1:
        return ends and tokens[0].text in ("return", "continue", "break")
    if tokens[0].text in _DECLARES or tokens[0].text.isupper():
        return tokens[0].text == "asm"
    for one, other in pairwise(tokens):
        if one.text in ("(", *_ASSIGNS):
            return True
        is_type = (one.kind == "name" and one.text != "template") or one.text in ("*", "&", ">")
        if is_type and other.kind == "name":
            return False  # of what is declared
    return tokens[-1].text in _ASSIGNS


def arguments(header: Header) -> Iterator[Edit]:
    """Two neighbouring arguments of a call, exchanged."""
    for i in header.code[1:]:
        before = header.tokens[i - 1]
        if header.tokens[i].text != "(" or before.kind == "string" or before.text in _NOT_CALLS:
            continue
        if before.kind != "name" and before.text != ">":
            continue
        parts = list(_parts(header.tokens, i))
        if any(_is_parameter(header.tokens[a : b + 1]) for a, b in parts):
            continue
        asm = before.text in ("asm", "volatile")
        if before.text in COMMUTATIVE:
            parts = parts[1:]
        for (a, b), (c, d) in pairwise(parts):
            one, other = header.text(a, b), header.text(c, d)
            if {":", "::"} & {token.text for token in header.tokens[a : d + 1]} and asm:
                continue  # the text, and lists of operands of different kinds
            if max(b - a, d - c) <= 6 and one != other:
                between = header.source[header.tokens[b].end : header.tokens[c].start]
                start, end = header.tokens[a].start, header.tokens[d].end
                yield Edit("arguments swapped", start, end, other + between + one)


def _parts(tokens: Sequence[Token], opening: int) -> Iterator[tuple[int, int]]:
    """First and last token of what commas separate inside a bracket."""
    end = matching(tokens, opening)
    first = opening + 1
    while first < end:
        last = min(_level(tokens, first, (",",)), end) - 1
        if last < first:
            return
        yield first, last
        first = last + 2


def _is_parameter(tokens: Sequence[Token]) -> bool:
    pairs = pairwise(tokens)
    return any(
        other.kind == "name" and (one.kind == "name" or (one.text in "*&>" and not one.spaced))
        for one, other in pairs
    )
