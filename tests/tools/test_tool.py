"""How a tool ends when something outside of it fails: never with the code of a wrong result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flash_helpers.base.cache import CacheLockTimeout, UnsafeCacheError
from flash_helpers.base.outputs import OutputError
from flash_helpers.base.tool import EXIT_INTERNAL, guarded, ranked

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "tools").rglob("*.py"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutputError("cannot write x: why"), 2), (UnsafeCacheError("a link"), 2),
        (CacheLockTimeout("waited"), 2), (OSError(28, "No space left on device"), 2),
        (FileNotFoundError(2, "No such file", "x"), 2), (KeyboardInterrupt(), 130),
        (ModuleNotFoundError("prettytable", name="prettytable"), 2),
        (ModuleNotFoundError("flash_lab.x", name="flash_lab.x"), EXIT_INTERNAL),
        (ValueError("a defect"), EXIT_INTERNAL), (RecursionError("a defect"), EXIT_INTERNAL),
    ],
)  # fmt: skip
def test_an_exception_never_looks_like_a_verdict(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise error

    assert guarded("x.py", main) == code
    said = capsys.readouterr().err
    assert (len(said.splitlines()) == 1) == (code != EXIT_INTERNAL)
    assert ("Traceback" in said) == (code == EXIT_INTERNAL)
    assert code == 130 or str(error.args[-1]) in said


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_a_code_is_passed_on(code: int) -> None:
    assert guarded("x.py", lambda: code) == code


def test_a_wrong_result_outranks_an_output_that_is_missing() -> None:
    assert [ranked(code, ["cannot write"]) for code in (0, 1, 3, 4)] == [2, 1, 2, 2]
    assert [ranked(code, []) for code in (0, 1, 3, 4)] == [0, 1, 3, 4]


def test_every_script_is_guarded() -> None:
    doors = {
        script.name: match[1]
        for script in SCRIPTS
        if (match := re.search(r'door\["enter"\]\("([\w.]+)"', script.read_text()))
    }
    assert {path.name for path in SCRIPTS} - set(doors) == {"door.py", "set_up.py"}
    for name, module in doors.items():
        folder = ROOT if module.startswith("tests.") else ROOT / "py"
        path = folder / f"{module.replace('.', '/')}.py"
        assert re.search(rf'guarded(, |\()"{name}", main\)', path.read_text()), name
    assert len(doors) > 15


RUN = "import sys; from flash_helpers.base.tool import guarded; sys.exit(guarded('x.py', {main}))"


@pytest.mark.parametrize(
    "main", ["lambda: print('late') or 1", "lambda: print('x' * 10**6, flush=True) or 1"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_standard_output_that_is_full_or_closed_is_a_sentence(main: str, unbuffered: str) -> None:
    command = [sys.executable, "-c", RUN.format(main=main)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "py"), "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    expected = "x.py: error: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, expected)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "x.py: error: standard output: Broken pipe\n")


def test_a_letter_that_the_terminal_lacks_is_no_failure() -> None:
    command = [sys.executable, "-c", RUN.format(main="lambda: print('时 \\udcff') or 0")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "py"), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\u65f6 \\udcff\n", "")
