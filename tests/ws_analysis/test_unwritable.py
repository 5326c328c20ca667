"""The generated scripts where a file cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ws_analysis.test_scripts import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    assert found.create().returncode == 0
    return found


@pytest.mark.parametrize(
    ("script", "file", "code", "expected"),
    [
        ("compare_analysis.sh", "ws_results/benchmark.txt", "0", 2),
        ("compare_analysis.sh", "ws_results/analysis.txt", "3", 2),
        ("compare_analysis.sh", "ws_results/analysis.txt", "1", 1),
        ("nvtx_analysis.sh", "nvtx_stats.txt", "0", 2),
        ("nvtx_analysis.sh", "nvtx_stats.txt", "1", 1),
        ("ncu_analysis.sh", "ncu_results/.probe", "0", 2),
    ],
)
def test_a_file_that_cannot_be_written_is_no_wrong_result(
    script: str, file: str, code: str, expected: int, place: Place
) -> None:
    """tee's 1 is not the tool's."""
    place.add_ncu()
    (place.work / file).mkdir(parents=True)
    done = place.run(script, FAKE_CODE=code)
    assert done.returncode == expected, done.stderr
    assert expected == 1 or "cannot write" in done.stderr
