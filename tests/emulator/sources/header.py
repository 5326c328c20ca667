"""A header as the generator of bugs reads it, and one change of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .tokens import Statement, Token, behind_template, matching, statements_of, tokens_of


@dataclass(frozen=True)
class Edit:
    """`source[start:end]` becomes `text`."""

    kind: str
    start: int
    end: int
    text: str


@dataclass
class Header:
    """A header's text, read once."""

    source: str
    tokens: list[Token] = field(init=False)
    statements: list[Statement] = field(init=False)
    code: list[int] = field(init=False)  # tokens that may be changed

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.source)
        self.statements = statements_of(self.tokens)
        skipped: set[int] = set()
        for i, token in enumerate(self.tokens):
            if token.text == "static_assert":
                skipped |= set(range(i, matching(self.tokens, i + 1)))
            elif token.text == "template" and self.tokens[i + 1].text == "<":
                skipped |= set(range(i, behind_template(self.tokens, i)))
        self.code = [i for i in range(len(self.tokens)) if i not in skipped]

    def text(self, first: int, last: int) -> str:
        """From token `first` to token `last`."""
        return self.source[self.tokens[first].start : self.tokens[last].end]
