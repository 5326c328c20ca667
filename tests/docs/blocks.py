"""The code blocks of the documents, and the commands in them and in running text.

A command or a block of Python that takes a GPU says so in a comment that begins with `on a GPU`: at
the end of the command, or in the first line of the block. `gpu_commands.py` prints all of those."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .markdown import ROOT

GPU = re.compile(r"#\s*on a GPU\b")
# Blocks of text are what a command prints, or a drawing; `cuda` is a program that a test compiles.
LANGUAGES = ("sh", "python", "cuda", "text")
# How a command in running text begins; the rest are names of functions, files, options and tools.
STARTS = re.compile(r"(?:[A-Z_]+=\S+ )*(?:python|pip|make|pytest|\S+\.(?:py|sh)) ")
NAME_OF_A_TOOL = re.compile(r"python (?:-m [\w.]+|\S+\.py)")


@dataclass(frozen=True)
class Block:
    """A fenced block: the document relative to the root, its first line's number, its content."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def on_gpu(self) -> bool:
        return GPU.search(self.text.partition("\n")[0]) is not None


@dataclass(frozen=True)
class Command:
    """A line of shell, continuation lines joined, and its comment."""

    document: str
    line: int
    text: str
    comment: str = ""

    @property
    def on_gpu(self) -> bool:
        return GPU.search(self.comment) is not None

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {self.text}"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def blocks(path: Path) -> list[Block]:
    """All fenced blocks. Raises ValueError for one that never ends, and for indented code, which
    has no language."""
    found: list[Block] = []
    inside: Block | None = None
    before = ""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            if inside is None:
                inside = Block(name_of(path), number + 1, line.strip().removeprefix("```"), "")
            else:
                found.append(inside)
                inside = None
        elif inside is not None:
            inside = replace(inside, text=f"{inside.text}{line}\n")
        elif line.startswith("    ") and not before.strip():
            raise ValueError(f"{name_of(path)}:{number} is code without a fence")
        before = line
    if inside is not None:
        raise ValueError(f"{inside} has no end")
    return found


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a block of shell, in their order."""
    joined, first = "", block.line
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        joined, first = (joined + line.lstrip(), first) if joined else (line, number)
        if joined.endswith("\\"):
            joined = joined.removesuffix("\\")
            continue
        text, *comment = re.split(r"(?:^|\s)(?=#\s)", joined, maxsplit=1)
        if text.strip():
            yield Command(block.document, first, text.strip(), "".join(comment))
        joined = ""


def commands_in_text(path: Path) -> Iterator[Command]:
    """What stands between backticks in running text and begins like a command. `python -m MODULE`
    alone is the tool's name, and `…` makes it a part of a command: neither can be checked."""
    text = re.sub(
        r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), path.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )  # fmt: skip
    for number, line in enumerate(text.splitlines(), start=1):
        for found in re.findall(r"`([^`]+)`", line):
            if STARTS.match(found) and not NAME_OF_A_TOOL.fullmatch(found) and "…" not in found:
                yield Command(name_of(path), number, found)
