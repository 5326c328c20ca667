"""What `make test-torch` runs, and what it answers; without a download."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.releases import ROOT

from .torch_releases import TESTED, TESTS, main
from .wheel_smoke import SMOKE


class Machine:
    """Runs nothing: remembers the commands, and answers as it is told."""

    def __init__(self, without: Sequence[str] = (), failing: Sequence[str] = ()) -> None:
        self.without, self.failing = without, failing
        self.wheels = 0
        self.tested: list[tuple[str, list[str]]] = []
        self.smoked: list[str] = []

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], where: Path = ROOT
    ) -> int:
        assert not {"PYTHONPATH", "KERNELS"} & {*environment}
        release = Path(command[0]).parents[1].name
        if "wheel" in command:
            folder = Path(command[command.index("--wheel-dir") + 1])
            (folder / "made-here.whl").touch()
            self.wheels += 1
        elif SMOKE in command:
            assert not (where / "flash_attention").exists()
            self.smoked.append(release)
        elif list(command[1:3]) == ["-m", "pytest"]:
            assert all((where / test.partition("::")[0]).exists() for test in TESTS)
            assert not (where / "py").exists()
            self.tested.append((release, list(command)))
            return int(release in self.failing)
        return int(any(f"torch=={release}" in command for release in self.without))


def test_each_release_has_an_environment_and_all_have_one_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELS", "prog")
    machine = Machine()
    assert main([], machine, tmp_path) == 0
    assert machine.smoked == [release for release, _ in machine.tested] == list(TESTED)
    assert all({*TESTS} <= {*command} for _, command in machine.tested)
    assert machine.wheels == 1
    assert not list(tmp_path.iterdir())


def test_arguments_reach_pytest(tmp_path: Path) -> None:
    machine = Machine()
    arguments = ["--python", sys.executable, "2.4.1", "--", "-m", "slow", "-x"]
    assert main(arguments, machine, tmp_path) == 0
    ((release, command),) = machine.tested
    assert release == "2.4.1" and command[-3:] == ["-m", "slow", "-x"]


@pytest.mark.parametrize(
    ("without", "failing", "code", "said"),
    [
        ([], ["2.6.0"], 1, "torch 2.4.1: passed\ntorch 2.6.0: failed\n"),
        (["2.4.1"], [], 3, "torch 2.4.1: could not be installed\ntorch 2.6.0: passed\n"),
        (["2.4.1", "2.6.0"], [], 4, "torch 2.6.0: could not be installed\n"),
    ],
)
def test_what_it_answers(
    without: list[str], failing: list[str], code: int, said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(["2.4.1", "2.6.0"], Machine(without, failing), tmp_path) == code
    assert capsys.readouterr().out.endswith(said)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["newest"], "newest is no release of PyTorch, such as 2."),
        (["--python", "python9.9"], "--python python9.9 is not a program"),
        (["--python"], "--python  is not a program"),
    ],
)
def test_what_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine()
    assert main(arguments, machine, tmp_path / "build") == 2
    assert f"error: {message}" in capsys.readouterr().err
    assert not machine.tested and not (tmp_path / "build").exists()


def test_docs_name_the_releases() -> None:
    named = ", ".join(TESTED[:-1]) + f" and {TESTED[-1]}"
    assert named in (ROOT / "docs" / "support.md").read_text()
