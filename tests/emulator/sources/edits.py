"""What a person might get wrong in a header: small changes of its text, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import phrases, words
from .header import Edit, Header

KINDS: tuple[Callable[[Header], Iterator[Edit]], ...] = (
    words.operators, words.negations, words.constants, words.names, words.phases, words.assembly,
    phrases.conditions, phrases.arms, phrases.deletions, phrases.exchanges, phrases.arguments,
)  # fmt: skip


def edits_of(source: str) -> list[Edit]:
    """All changes of a header, in the order of their places."""
    header = Header(source)
    found = {edit for kind in KINDS for edit in kind(header)}
    return sorted(found, key=lambda edit: (edit.start, edit.end, edit.kind, edit.text))
