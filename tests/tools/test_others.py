"""Parts and time limits of tests that others wrote (tests/others.py), on tests made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import others
from tests.others import Outcome, outcome_of, run
from tests.torch_op import pytorch_sdpa

MADE_HERE = """import pytest, time
@pytest.mark.parametrize("i", range(7))
def test_of(i): assert i != 3
def test_left_out(): pytest.skip("no")
def test_xfail(): pytest.xfail("refused: in words")
"""
SLOW = """import time
def test_a(): time.sleep(0.6)
def test_b(): pass
def test_c(): time.sleep(60)
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    path = tmp_path / "test_made_here.py"
    path.write_text(MADE_HERE)
    return path


def ran(tests: Path, part: str = "1/1", seconds: float = 600.0) -> Outcome:
    return run(tests, [str(tests)], plugin="", folder=tests.parent, part=part, seconds=seconds)


def test_parts_are_all_of_it_once(tests: Path) -> None:
    whole = ran(tests)
    assert whole == Outcome(passed=6, refused=1, skipped=1, failed=("test_of[3]",))
    parts = [ran(tests, f"{i}/2") for i in (1, 2)]
    assert [part.failed for part in parts] == [(), ("test_of[3]",)]
    for name in ("passed", "refused", "skipped", "not_run"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)


def test_nothing_begins_when_the_time_is_over(tests: Path) -> None:
    tests.write_text(SLOW)
    assert ran(tests, seconds=0.3) == Outcome(passed=1, not_run=2)


def test_a_test_that_does_not_end_is_killed(tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what ended before it is known."""
    tests.write_text(SLOW.replace("0.6", "0.0"))
    monkeypatch.setattr(others, "GRACE", 1.0)
    assert ran(tests, seconds=9.0) == Outcome(passed=2, not_run=1)


def test_what_is_no_python_is_a_failure(tests: Path) -> None:
    tests.write_text("def test_x(: pass")
    assert ran(tests).failed == ("test_made_here.py",)


def test_an_error_after_a_test_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "outcomes"
    path.write_text("selected 3\npassed test_a\nfailed test_a\npassed test_b\n")
    assert outcome_of(path, 1) == Outcome(passed=1, failed=("test_a",), not_run=1)
    assert outcome_of(path, -11).failed == ("test_a", "pytest ended with -11")
    assert not outcome_of(tmp_path / "nothing", 5).anything


@pytest.mark.parametrize(
    "options", [["--part", "0/2"], ["--part", "3/2"], ["--part", "2"], ["--seconds", "0"]]
)
def test_options_that_mean_nothing(options: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        pytorch_sdpa.main(options)
