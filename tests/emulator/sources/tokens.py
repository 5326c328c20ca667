"""Tokens and statements of a header, as far as planting bugs takes: no comments, no preprocessor.

The sources are formatted by clang-format, so that a binary operator has spaces around it, and the
brackets of a template have not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]* )
      | (?P<string> "(?:\\.|[^"\\])*" )
      | (?P<number> 0[xX][0-9a-fA-F]+[uUlL]* | \d+\.\d+(?:[eE][+-]?\d+)?[fF]? | \d+[uUlL]* )
      | (?P<name> [A-Za-z_]\w* )
      | (?P<operator> <<= | >>= | -> | \+\+ | -- | << | >> | <= | >= | == | != | && | \|\|
                      | \+= | -= | \*= | /= | %= | &= | \|= | \^= | :: | \.\.\. | . )""",
    re.X | re.S | re.M,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
_HEADS = {"if", "for", "while", "switch"}
_SCOPES = {"struct", "namespace", "class", "union", "enum"}


@dataclass(frozen=True)
class Token:
    kind: str  # string, number, name, operator
    text: str
    start: int
    end: int
    spaced: bool  # white space on both sides


def tokens_of(source: str) -> list[Token]:
    found = []
    for match in _TOKEN.finditer(source):
        if match.lastgroup != "skipped":
            start, end = match.span()
            around = source[start - 1 : start] + source[end : end + 1]
            found.append(Token(str(match.lastgroup), match[0], start, end, around.strip() == ""))
    return found


def matching(tokens: Sequence[Token], index: int) -> int:
    """Index of the bracket that closes the one at `index`. Raises ValueError if there is none."""
    opening, depth = tokens[index].text, 0
    for i in range(index, len(tokens)):
        if tokens[i].text == opening:
            depth += 1
        elif tokens[i].text == CLOSING[opening]:
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"{opening} at {tokens[index].start} is never closed")


@dataclass(frozen=True)
class Statement:
    """Without blocks inside; tokens `first` to `last`, the semicolon. `block` and `index` say which
    list of statements it stands in, and where; index -1: it is the body of an `if` or a loop."""

    first: int
    last: int
    block: int
    index: int


@dataclass
class _Parser:
    tokens: Sequence[Token]
    found: list[Statement] = field(default_factory=list)
    n_blocks: int = 0

    def block(self, i: int) -> int:
        """Statements from token `i` on until the block is closed; the index behind."""
        number = self.n_blocks
        self.n_blocks += 1
        index = 0
        while i < len(self.tokens) and self.tokens[i].text != "}":
            i = self.statement(i, number, index)
            index += 1
        return i + 1

    def statement(self, i: int, block: int, index: int) -> int:
        text = self.tokens[i].text
        if text == "{":
            return self.block(i + 1)
        if text in _HEADS:
            i += 1 + (self.tokens[i + 1].text == "constexpr")
            return self.statement(matching(self.tokens, i) + 1, block, -1)
        if text in ("else", "do"):
            return self.statement(i + 1, block, -1)
        if text in ("public", "private", "protected"):
            return i + 2
        if text == "template":
            return self.statement(behind_template(self.tokens, i), block, -1)
        return self.plain(i, block, index)

    def plain(self, first: int, block: int, index: int) -> int:
        i, depth, simple = first, 0, True
        while i < len(self.tokens):
            text = self.tokens[i].text
            if text == "{" and self._opens_block(first, i):
                simple = False
                i = self.block(i + 1)
                if depth == 0:
                    closed = i < len(self.tokens) and self.tokens[i].text == ";"
                    return i + closed
                continue
            if text == "{":
                i = matching(self.tokens, i)
            elif text in "([":
                depth += 1
            elif text in ")]":
                depth -= 1
            elif text == ";" and depth == 0:
                if simple:
                    self.found.append(Statement(first, i, block, index))
                return i + 1
            i += 1
        return i

    def _opens_block(self, first: int, i: int) -> bool:
        before = self.tokens[i - 1].text
        if self.tokens[first].text in _SCOPES:
            return self.tokens[first].text != "enum"
        return before in (")", "const", "noexcept")


def behind_template(tokens: Sequence[Token], index: int) -> int:
    """Index behind the parameters of the `template` at `index`."""
    depth = 0
    for i in range(index + 1, len(tokens)):
        depth += {"<": 1, ">": -1, ">>": -2}.get(tokens[i].text, 0)
        if depth == 0:
            return i + 1
    raise ValueError(f"the template at {tokens[index].start} does not end")


def statements_of(tokens: Sequence[Token]) -> list[Statement]:
    parser = _Parser(tokens)
    parser.block(0)
    return parser.found
