"""ncu_bench.py with NVIDIA's report module, of which a stand-in reads what the stand-in wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.ncu_stand_in import Bench, rows

# Reads what the stand-in exports: text. The real module is NVIDIA's and reads a binary file.
REPORT_MODULE = """
from pathlib import Path
from flash_lab.bench import ncu_metrics, ncu_read

class Action:
    NameBase_DEMANGLED = 1
    def __init__(self, launch): self.launch = launch
    def name(self, base): return self.launch.symbol
    def metric_by_name(self, name):
        found = self.launch.values.get(name)
        return found and Metric(name, found)

class Metric:
    def __init__(self, name, found): self.n, self.f = name, found
    def has_value(self): return True
    def as_double(self): return ncu_metrics.parse_value(self.n, self.f)
    def unit(self): return self.f.unit

class Context:
    def __init__(self, launches): self.launches = launches
    def num_ranges(self): return 1
    def range_by_idx(self, index): return self
    def num_actions(self): return len(self.launches)
    def action_by_idx(self, index): return Action(self.launches[index])

def load_report(path):
    return Context(ncu_read.read_csv(Path(path).read_text()).launches)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_binary_report_gives_the_same_table(bench: Bench) -> None:
    from_csv = bench("ok", "--csv")
    bench.install_report_module(REPORT_MODULE)
    from_report = bench("ok", "--csv")
    assert from_report.returncode == 0, from_report.stderr
    assert "--export" in bench.calls()[-1]
    assert "extras/python/ncu_report.py" in from_report.stderr

    def numbers(text: str) -> list[list[str]]:
        skip = ("seed", "date", "command")
        return [[v for k, v in row.items() if k not in skip] for row in rows(text)]

    assert numbers(from_report.stdout) == numbers(from_csv.stdout)
    nothing = bench("nokernel")
    assert nothing.returncode == 4
    assert "profiled no kernel" in nothing.stdout


def test_a_report_that_the_module_cannot_read_goes_through_ncu(bench: Bench) -> None:
    bench.install_report_module("def load_report(path): raise RuntimeError('too new')\n")
    done = bench("ok", "--csv")
    assert done.returncode == 0, done.stderr
    assert [row["status"] for row in rows(done.stdout)] == ["ok"] * 4
    assert "--import" in bench.calls()[-1]


def test_the_report_module_is_asked_for_and_missing(bench: Bench) -> None:
    bench.install_report_module("raise ImportError('for another Python')\n")
    done = bench("ok")
    if done.returncode == 0:
        pytest.skip("ncu-report is installed here")
    assert (done.returncode, done.stdout) == (4, "")
    assert "pip install ncu-report" in done.stderr
    bench.reader = "auto"
    assert bench("ok").returncode == 0
