"""What `make test-triton` runs, and what it answers; without a download."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from flash_attention.triton_kit.versions import TESTED
from tests.releases import ROOT

from .releases import TESTS, main


class Machine:
    """Runs nothing: remembers the commands, and answers as it is told."""

    def __init__(self, without: Sequence[str] = (), failing: Sequence[str] = ()) -> None:
        self.without, self.failing = without, failing
        self.downloads: list[str] = []
        self.tested: list[tuple[str, list[str]]] = []

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        assert command[0] == sys.executable
        if "pip" in command:
            release = command[-1].removeprefix("triton==")
            self.downloads.append(release)
            Path(command[command.index("--target") + 1]).mkdir()
            return int(release in self.without)
        folder = environment["PYTHONPATH"].split(":")[0]
        release = Path(folder).name.removeprefix("triton-")
        if "-c" in command:
            return int(not Path(folder).is_dir())
        self.tested.append((release, list(command)))
        return int(release in self.failing)


def test_all_releases_by_default_and_each_is_installed_once(tmp_path: Path) -> None:
    machine = Machine()
    assert main([], machine, tmp_path) == main([], machine, tmp_path) == 0
    assert machine.downloads == list(TESTED)
    assert [release for release, _ in machine.tested] == list(TESTED) * 2
    assert all(command[-len(TESTS) :] == list(TESTS) for _, command in machine.tested)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"triton-{r}" for r in TESTED]


def test_arguments_reach_pytest(tmp_path: Path) -> None:
    machine = Machine()
    assert main(["3.7.1", "--", "-m", "slow", "-x"], machine, tmp_path) == 0
    ((release, command),) = machine.tested
    assert release == "3.7.1" and command[-3:] == ["-m", "slow", "-x"]


@pytest.mark.parametrize(
    ("without", "failing", "code", "said"),
    [
        ([], ["3.7.1"], 1, "triton 3.6.0: passed\ntriton 3.7.1: failed\n"),
        (["3.6.0"], [], 3, "triton 3.6.0: could not be installed\ntriton 3.7.1: passed\n"),
        (["3.6.0"], ["3.7.1"], 1, "triton 3.7.1: failed\n"),
        (["3.6.0", "3.7.1"], [], 4, "triton 3.7.1: could not be installed\n"),
    ],
)
def test_what_it_answers(
    without: list[str], failing: list[str], code: int, said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(["3.6.0", "3.7.1"], Machine(without, failing), tmp_path) == code
    assert capsys.readouterr().out.endswith(said)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"triton-{r}" for r in ("3.6.0", "3.7.1") if r not in without}


def test_a_file_in_the_place_of_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "triton-3.6.0").write_text("no folder")
    machine = Machine()
    assert main(["3.6.0"], machine, tmp_path) == 4
    assert "triton-3.6.0: Not a directory" in capsys.readouterr().err
    assert not machine.tested


@pytest.mark.parametrize("release", ["3.5.0", "latest", "3.10.0"])
def test_a_release_that_is_not_supported(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine()
    assert main([release], machine, tmp_path) == 2
    message = capsys.readouterr().err
    assert f"error: {release} is none of triton>=3.6.0,<3.10; tested are 3.6.0, 3.7.0," in message
    assert not machine.downloads


def test_every_test_that_needs_triton_is_among_them() -> None:
    covered = {
        path
        for name in TESTS
        for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).glob("test_*.py"))
    }
    assert all(path.is_file() for path in covered)
    needing = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r'importorskip\("triton"|find_spec\("triton"\)', path.read_text())
    }
    assert needing - {Path(__file__)} <= covered
