"""What the spellings of every family have in common: strict and anchored. A spelling is accepted
only as a whole; blanks, signs, leading zeros, other digits than ASCII's, doubled or reordered flags
and anything before or after are errors.
"""

from __future__ import annotations

import re

MAX_TEXT = 4096  # longer than any table row; keeps the error message and the search short

# No leading zeros: every number has one spelling, so a name has one configuration and back.
NUMBER = "(?:0|[1-9][0-9]{0,4})"


def cell(text: str) -> str:
    """The first cell, if `text` is a row of a table."""
    row = re.fullmatch(r"\| *(?P<cell>[^|\r\n]*[^|\r\n ]) *\|(?:[^\r\n]*\|)?", text)
    return row["cell"] if row else text
