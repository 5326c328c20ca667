"""What `make test-models` runs, and what it answers; without a download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.releases import ROOT

from .model_releases import TESTED, TESTS, main


class Machine:
    """Runs nothing: remembers what was tested, and answers as it is told."""

    def __init__(self, without: Sequence[str] = (), failing: Sequence[str] = ()) -> None:
        self.without, self.failing = without, failing
        self.tested: list[tuple[str, list[str]]] = []

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], where: Path = ROOT
    ) -> int:
        if "pip" in command:
            release = command[-1]
            if release not in self.without:
                Path(command[command.index("--target") + 1]).mkdir()
            return int(release in self.without)
        name = Path(environment["PYTHONPATH"].partition(":")[0]).name.replace("-", "==")
        if "pytest" in command:
            self.tested.append((name, list(command)))
            return int(name in self.failing)
        package, _, version = name.partition("==")
        return int(f"{package}.__version__ != {version!r}" not in command[-1])


def test_each_release_runs_its_package_s_tests(tmp_path: Path) -> None:
    machine = Machine()
    assert main(["--", "-x"], machine, tmp_path) == 0
    assert [release for release, _ in machine.tested] == list(TESTED)
    for release, command in machine.tested:
        files = TESTS[release.partition("==")[0]]
        assert {*files, "-x"} <= {*command} and all((ROOT / file).is_file() for file in files)


def test_what_it_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = TESTED[:2]
    assert main([first, second], Machine(failing=[second]), tmp_path / "a") == 1
    assert f"with {second}: failed" in capsys.readouterr().out
    assert main([first, second], Machine(without=[first]), tmp_path / "b") == 3
    assert main([first], Machine(without=[first]), tmp_path / "c") == 4
    for wrong in ("torch==2.4.1", "transformers", "diffusers==0.42"):
        assert main([wrong], Machine(), tmp_path) == 2


def test_the_support_page_names_them() -> None:
    page = (ROOT / "docs" / "support.md").read_text()
    assert all(f"| {release.replace('==', ' ')} |" in page for release in TESTED)
