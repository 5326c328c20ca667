"""The tool that plants bugs in the product; the slow test below plants all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bugs import BUGS
from tests.mutation import FOUND, GREEN, ROOT, UNTRIED, Bug, Result, main, report, try_all


def _bug(text: str = "a + b", replacement: str = "a - b", *tests: str) -> Bug:
    return Bug("a bug", "product.py", text, replacement, tests or ("test_sum.py",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "product.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "test_sum.py").write_text(
        "from product import add\ndef test_it():\n    assert add(1, 2) == 3\n"
    )
    (tmp_path / "test_blind.py").write_text("from product import add\ndef test_it(): add(1, 2)\n")
    (tmp_path / "test_wrong.py").write_text("def test_it():\n    assert False\n")
    return tmp_path


def test_what_is_said_of_a_bug(tree: Path) -> None:
    before = {path.name: path.read_bytes() for path in tree.iterdir()}
    cases = [
        (_bug("a + b", "a - b", "test_sum.py", "test_blind.py"), [FOUND, GREEN]),
        (_bug("a + b", "b + a"), [GREEN]),  # and the bug before is gone
        (_bug("a * b"), [UNTRIED]),
        (_bug("a"), [UNTRIED]),  # several places
        (_bug("a + b", "a - b", "test_wrong.py"), [UNTRIED]),
        (_bug("a + b", "a - b", "test_sum.py::test_gone"), [UNTRIED]),
    ]
    results = list(try_all([bug for bug, _ in cases], tree))
    expected = [outcome for _, outcomes in cases for outcome in outcomes]
    assert [result.outcome for result in results] == expected, [str(r) for r in results]
    assert {path.name: path.read_bytes() for path in tree.iterdir()} == before


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([FOUND], 0), ([FOUND, GREEN], 1), ([FOUND, UNTRIED], 3), ([GREEN, UNTRIED], 1), ([], 3)],
)
def test_exit_codes(outcomes: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Result(_bug(), "test_sum.py", outcome) for outcome in outcomes) == code
    counts = f"{outcomes.count(FOUND)} {FOUND}, {outcomes.count(GREEN)} {GREEN}"
    assert counts in capsys.readouterr().out.splitlines()[-1]


def test_a_word_that_no_bug_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["no such bug"])
    assert caught.value.code == 2 and "no bug has no such bug" in capsys.readouterr().err


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_has_its_place_and_its_tests(bug: Bug) -> None:
    assert bug.planted((ROOT / bug.path).read_text()) and bug.tests
    for test in bug.tests:
        file, _, name = test.partition("::")
        function = name.partition("[")[0]  # of one case
        assert f"def {function}" in (ROOT / file).read_text()


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_bug_is_found() -> None:
    assert main([]) == 0
