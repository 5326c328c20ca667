"""Reads the documents: links, tables between marks, code blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
SUPPORT = ROOT / "docs" / "support.md"
BOOK = ROOT / "docs" / "book"


def documents() -> list[Path]:
    """The hand-written documents, those of the emulator, and the page about the steps."""
    folders = (ROOT / "docs", ROOT / "previous_kernels", ROOT / "py")
    return sorted([*ROOT.glob("*.md"), *(path for f in folders for path in f.rglob("*.md"))])


def between(path: Path, mark: str) -> str:
    """The text between `<!-- mark:begin … -->` and `<!-- mark:end -->`."""
    found = re.findall(
        rf"<!-- {mark}:begin[^>]*-->\n(.*?)<!-- {mark}:end -->", path.read_text(), re.DOTALL
    )
    assert len(found) == 1, f"{path.name} has {len(found)} sections {mark}"
    return str(found[0])


def table(path: Path, mark: str) -> list[list[str]]:
    """The rows of the one table between the marks, without its head."""
    lines = [line for line in between(path, mark).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, rule, *body = rows
    assert set("".join(rule)) <= set("-: ") and body, f"{path.name}: {mark} holds no table"
    assert all(len(row) == len(head) for row in body), f"{path.name}: {mark} is ragged"
    return body


def code_words(text: str) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def code_blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The headings as GitHub's link targets."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
