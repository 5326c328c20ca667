"""Compile jobs follow MAX_JOBS, else cores and memory, cgroup limits included."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_helpers.build.parallelism import (
    PEAK_BYTES_PER_JOB,
    available_cores,
    available_memory,
    jobs,
)
from flash_helpers.compilers.errors import BuildError


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_jobs() -> None:
    plenty = 1000 * PEAK_BYTES_PER_JOB
    assert jobs({}, cores=16, memory=plenty).count == 16
    assert jobs({}, cores=16, memory=3 * PEAK_BYTES_PER_JOB + 1).count == 3
    assert jobs({}, cores=16, memory=0).count == 1
    assert jobs({"MAX_JOBS": "5"}, cores=2, memory=0).count == 5


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "1;x", "²"])
def test_max_jobs_is_a_number(text: str) -> None:
    with pytest.raises(BuildError, match="MAX_JOBS"):
        jobs({"MAX_JOBS": text})


def test_cgroup_quotas_limit_the_cores(tmp_path: Path) -> None:
    unlimited = available_cores(tmp_path)
    assert unlimited >= 1
    assert available_cores(write(tmp_path / "a", {"cpu.max": "100000 100000\n"})) == 1
    assert available_cores(write(tmp_path / "b", {"cpu.max": "max 100000\n"})) == unlimited
    version_1 = {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert available_cores(write(tmp_path / "c", version_1)) == 1
    version_1["cpu/cpu.cfs_quota_us"] = "-1\n"
    assert available_cores(write(tmp_path / "d", version_1)) == unlimited


def test_cgroup_limits_and_file_cache(tmp_path: Path) -> None:
    meminfo = write(tmp_path, {"meminfo": "MemTotal: 9 kB\nMemAvailable:    8000 kB\n"}) / "meminfo"
    assert available_memory(tmp_path, meminfo) == 8000 * 1024
    limited = {"memory.max": "5000\n", "memory.current": "3000\n"}
    assert available_memory(write(tmp_path / "a", limited), meminfo) == 2000
    cached = {**limited, "memory.stat": "anon 1\ninactive_file 500\n"}
    assert available_memory(write(tmp_path / "b", cached), meminfo) == 2500
    unlimited = {"memory.max": "max\n", "memory.current": "3000\n"}
    assert available_memory(write(tmp_path / "c", unlimited), meminfo) == 8000 * 1024
    version_1 = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": "3000\n",
    }
    assert available_memory(write(tmp_path / "d", version_1), meminfo) == 8000 * 1024
