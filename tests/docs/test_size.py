"""How much Python there is besides the tests."""

from .markdown import ROOT

FOLDERS = ("py", "flash_attention", "tools")
CEILING = 48_770


def test_the_product_does_not_grow_unseen() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    n_lines = sum(path.read_bytes().count(b"\n") for path in files)
    assert n_lines <= CEILING, (
        f"{n_lines:,} lines of Python in {', '.join(FOLDERS)}, and {CEILING:,} are allowed: "
        "shorten what is there, move to tests/ what only tests use, or raise it with a reason"
    )
