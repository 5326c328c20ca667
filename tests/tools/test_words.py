"""Words of messages that depend on a value."""

from __future__ import annotations

import numpy as np
import pytest

from flash_helpers.base.words import kind_of


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, "an int"),
        ("", "a str"),
        (None, "None"),
        (OSError(), "an OSError"),
        (np.uint8(1), "a uint8"),
        (UserWarning(), "a UserWarning"),
        (UnboundLocalError(), "an UnboundLocalError"),
    ],
)
def test_the_article_fits_the_type(value: object, words: str) -> None:
    assert kind_of(value) == words
