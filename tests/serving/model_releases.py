"""Runs models of transformers and diffusers with these kernels, with several releases of both.

    python -m tests.serving.model_releases [PACKAGE==RELEASE ...] [-- PYTEST ARGUMENTS]
    make test-models [MODELS="transformers==5.23.0 diffusers==0.42.1"] [PYTEST_ARGS=...]

Without a RELEASE: those that docs/support.md names. Each is put into build/PACKAGE-RELEASE once,
with what it needs (100 MB of download, 300 MB there), where PYTHONPATH lets the tests find it
before any other; the torch is the installed one. Exit codes: 0 all passed, 1 a test failed, 2
usage, 3 a release could not be installed, 4 none could, 130 interrupted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.releases import (
    FAILED,
    MISSING,
    PASSED,
    ROOT,
    Execute,
    beside,
    ended,
    error,
    execute,
    split,
    summary,
)  # fmt: skip

TESTED = ("transformers==5.23.0", "diffusers==0.36.0", "diffusers==0.42.1")
TESTS = {
    "transformers": ("tests/serving/test_transformers.py", "tests/forward/test_examples.py"),
    "diffusers": ("tests/forward/test_diffusers.py",),
}


def main(arguments: Sequence[str], run: Execute = execute, folder: Path = ROOT / "build") -> int:
    """The exit code. Folders of the releases are made in `folder`."""
    releases, pytest_arguments = split(arguments, TESTED)
    for release in releases:
        if not re.fullmatch(rf"({'|'.join(TESTS)})==\d+\.\d+\.\d+", release):
            error(f"{release} is no release of {' or '.join(TESTS)}, such as {TESTED[-1]}")
            return 2
    results = {release: _test(release, pytest_arguments, run, folder) for release in releases}
    return summary("with", results)


def _test(release: str, pytest_arguments: Sequence[str], run: Execute, folder: Path) -> str:
    print(f"== {release}", flush=True)
    package, _, version = release.partition("==")
    environment = beside(package, version, run, folder)
    if not environment:
        return MISSING
    pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "not slow"]
    return FAILED if run([*pytest, *TESTS[package], *pytest_arguments], environment) else PASSED


if __name__ == "__main__":
    sys.exit(ended(main))
