"""Words of messages that depend on a value."""

import re

# Written with a vowel, spoken with a consonant.
_SPOKEN_YU = re.compile(r"u(int|ni|se|til)", re.IGNORECASE)


def kind_of(value: object) -> str:
    """The type of a value as a sentence names it: `an int`, `a Tensor`, `a uint64`; `None` is
    itself."""
    if value is None:
        return "None"
    name = type(value).__name__
    vowel = name[0].lower() in "aeiou" and not _SPOKEN_YU.match(name)
    return f"{'an' if vowel else 'a'} {name}"
