"""Runs the tests of the Triton and Gluon kernels with several releases of triton, whichever one is
installed.

    python -m tests.triton.releases [RELEASE ...] [-- PYTEST ARGUMENTS]
    make test-triton [TRITON="3.6.0 3.9.0"] [PYTEST_ARGS=...]

Without a RELEASE: all that flash_attention/triton_kit/versions.py calls tested. Each is put into
build/triton-RELEASE once (200 MB of download, 700 MB there), where PYTHONPATH lets the tests find
it before any other. Slow tests are left out, but for `-- -m ""` (all) or `-- -m slow`. Exit codes:
0 all passed, 1 a test failed, 2 usage, 3 a release could not be installed, 4 none could, 130
interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from flash_attention.triton_kit.versions import MINORS, REQUIREMENT, TESTED, minor_of
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

# All that import triton (tests/triton/test_releases.py finds those that are not here).
TESTS = (
    "tests/triton",
    "tests/gluon",
    "tests/operators",
    "tests/docs/test_book.py",
    "tests/emulator/test_totals.py",
    "tests/emulator/test_triton.py",
    "tests/emulator/sm90/test_gluon.py",
    "tests/emulator/sm90/test_gluon_attention.py",
    "tests/emulator/sm90/test_triton_attention.py",
    "tests/measured_operators/test_operators_cli.py",
    "tests/tools/test_doctor.py",
    "tests/tools/test_random_calls.py",
    "tests/ws_analysis/test_analysis.py",
    "tests/ws_analysis/test_ranges.py",
    "tests/gpu/test_gluon.py",
    "tests/gpu/test_operators.py",
    "tests/gpu/test_operators_conv.py",
    "tests/gpu/test_operators_matmul.py",
    "tests/gpu/test_operators_parts.py",
    "tests/gpu/test_operators_pipeline.py",
    "tests/gpu/test_triton.py",
)


def main(arguments: Sequence[str], run: Execute = execute, folder: Path = ROOT / "build") -> int:
    """The exit code. Folders of the releases are made in `folder`."""
    releases, pytest_arguments = split(arguments, TESTED)
    for release in releases:
        if minor_of(release) not in MINORS:
            error(f"{release} is none of {REQUIREMENT}; tested are {', '.join(TESTED)}")
            return 2
    results = {release: _test(release, pytest_arguments, run, folder) for release in releases}
    return summary("triton", results)


def _test(release: str, pytest_arguments: Sequence[str], run: Execute, folder: Path) -> str:
    print(f"== triton {release}", flush=True)
    environment = beside("triton", release, run, folder, "--no-deps")
    if not environment:
        return MISSING
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *TESTS, *pytest_arguments]
    return FAILED if run(command, environment) else PASSED


if __name__ == "__main__":
    sys.exit(ended(main))
