"""What is looked at, and what is found."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    NOTE = "note"  # something is not there that need not be
    WRONG = "wrong"


@dataclass(frozen=True)
class Check:
    """`find` says what there is. What it raises is a note if it is of `absent`, else wrong, and
    `remedy` says what helps."""

    section: str
    name: str
    find: Callable[[], str]
    remedy: str = "this was not foreseen: report it"
    absent: type[Exception] | tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    section: str
    name: str
    state: State
    text: str
    remedy: str = ""


def examine(check: Check) -> Row:
    """Never raises: a check that fails is an answer too."""
    try:
        return Row(check.section, check.name, State.OK, check.find())
    except check.absent as error:
        return Row(check.section, check.name, State.NOTE, " ".join(str(error).split()))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Row(check.section, check.name, State.WRONG, text, check.remedy)
