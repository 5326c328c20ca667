"""The build report: ptxas' words read right, and a planted spill fails the build."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from flash_helpers.build import report
from flash_helpers.codegen import generate
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.ptxas import parse_compile_seconds, parse_ptxas
from flash_helpers.kernels.sets import get_kernel_configs, known_configs

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "build" / "build_report.py"
CONFIG = get_kernel_configs("prog")[0]
NAME = CONFIG.kernel_name()


def log(kernel: str = NAME, spills: int = 0, architecture: str = "sm_80") -> str:
    """What record_compile.sh leaves for a unit with one kernel."""
    return (
        "compile-centiseconds 123\n"
        f"ptxas info    : Compiling entry function '{kernel}' for '{architecture}'\n"
        f"ptxas info    : Function properties for {kernel}\n"
        f"    0 bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads\n"
        "ptxas info    : Used 200 registers, used 1 barriers, 512 bytes cmem[0]\n"
    )


def test_a_recorded_log() -> None:
    found = {(u.kernel, u.architecture): u for u in parse_ptxas(read("resources_two_archs.log"))}
    kernels = ("trivial", "spills", "uses_everything")
    assert set(found) == {(k, a) for k in kernels for a in ("sm_80", "sm_90a")}
    trivial = found["trivial", "sm_80"]
    assert (trivial.registers, trivial.barriers, trivial.spills) == (8, 0, False)
    spilling = found["spills", "sm_90a"]
    assert (spilling.registers, spilling.stack_bytes) == (32, 1040)
    assert (spilling.spill_store_bytes, spilling.spill_load_bytes) == (668, 864)
    everything = found["uses_everything", "sm_80"]
    assert (everything.static_shared_bytes, everything.barriers) == (384, 4)
    assert (everything.stack_bytes, everything.spills) == (32, False)
    assert everything.ptxas_seconds == pytest.approx(0.00155)


def test_a_recorded_log_of_our_own_kernels() -> None:
    text = read("progall_unit.log")
    assert parse_compile_seconds(text) == 8.53
    usages = parse_ptxas(text)
    assert len(usages) == 8  # four kernels, two architectures
    assert {usage.architecture for usage in usages} == {"sm_80", "sm_90a"}
    assert all(usage.barriers == 1 for usage in usages)
    assert sum(usage.spills for usage in usages) == 6


def test_spills_of_a_function_that_was_not_inlined_count() -> None:
    text = log() + (
        "ptxas info    : Function properties for helper\n"
        "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
    )
    (usage,) = parse_ptxas(text)
    assert (usage.spill_store_bytes, usage.spill_load_bytes, usage.stack_bytes) == (4, 12, 0)


@pytest.mark.parametrize("missing", ["spill stores", "Used 200", "compile-centiseconds"])
def test_an_incomplete_log_is_an_error(tmp_path: Path, missing: str) -> None:
    text = "".join(line for line in log().splitlines(True) if missing not in line)
    write_build(tmp_path, {"a.cu": text})
    with pytest.raises(BuildError, match="log"):
        report.collect(tmp_path, ["generated/a.cu"])
    with pytest.raises(BuildError, match="missing"):
        report.collect(tmp_path, ["generated/b.cu"])


def test_a_kernel_without_a_row_is_an_error(tmp_path: Path) -> None:
    write_build(tmp_path, {"a.cu": log()})
    rows = report.collect(tmp_path, ["generated/a.cu"])
    report.check_complete(rows, [CONFIG], ["sm_80"])
    report.check_complete(rows, [CONFIG], ["sm_80+PTX"])
    with pytest.raises(BuildError, match=f"{NAME} for sm_90a"):
        report.check_complete(rows, [CONFIG], ["sm_80", "sm_90a"])


def test_a_planted_spill_fails_unless_it_is_allowed(tmp_path: Path) -> None:
    write_build(tmp_path, {"a.cu": log(spills=8)})
    rows = report.collect(tmp_path, ["generated/a.cu"])
    allowed = tmp_path / "allowed.toml"

    def verdict(text: str) -> str:
        allowed.write_text(text)
        try:
            report.check_spills(rows, allowed)
        except BuildError as error:
            return str(error)
        return "passes"

    entry = f'[[allow]]\npattern = "{NAME}"\nreason = "a test"\n'
    assert f"{NAME} (sm_80): 200 registers, 8 bytes" in verdict("")
    assert verdict(entry + "most_bytes = 8\n") == "passes"
    assert NAME in verdict(entry + "most_bytes = 7\n")
    assert NAME in verdict(entry + 'most_bytes = 8\narchitecture = "sm_90a"\n')
    assert NAME in verdict(entry.replace(NAME, "other*") + "most_bytes = 8\n")
    # The list itself is read strictly.
    assert "most_bytes" in verdict(entry)
    assert "reason" in verdict(entry.replace("a test", " ") + "most_bytes = 8\n")
    assert "pattern" in verdict(entry.replace(NAME, "*") + "most_bytes = 8\n")
    assert "unexpected" in verdict(entry + "most_bytes = 8\nwhy = 1\n")
    assert "unknown allowed" in verdict("[[allowed]]\n")


def test_every_entry_of_the_list_names_a_kernel() -> None:
    allowed = report.load_allowed_spills()
    kernels = [config.kernel_name() for config in known_configs()]
    assert report.unused_entries(allowed, kernels) == []
    stale = report.AllowedSpill("no_such_kernel*", 1, "a test")
    assert report.unused_entries([*allowed, stale], kernels) == [stale]


def test_the_command(tmp_path: Path) -> None:
    nothing = run_tool(tmp_path)
    assert (nothing.returncode, nothing.stderr.count("\n")) == (4, 1)

    manifest = generate(tmp_path / "generated", [CONFIG], configs_per_unit=1)
    write_build(tmp_path, {manifest.units()[0]: log()})
    good = run_tool(tmp_path)
    assert good.returncode == 0 and NAME in good.stdout and "registers" in good.stdout

    as_csv = run_tool(tmp_path, "--csv", "-")
    (row,) = csv.DictReader(io.StringIO(as_csv.stdout))
    assert (row["kernel"], row["arch"], row["registers"]) == (NAME, "sm_80", "200")
    assert row["shared_bytes"] == str(CONFIG.smem_bytes())
    assert (row["unit_seconds"], row["unit_kernels"]) == ("1.23", "1")

    write_build(tmp_path, {manifest.units()[0]: log(spills=100_000)})
    spilling = run_tool(tmp_path, "--csv", str(tmp_path / "report.csv"))
    assert spilling.returncode == 1 and f"{NAME} spills on sm_80" in spilling.stderr
    assert "100000" in (tmp_path / "report.csv").read_text()

    assert run_tool(tmp_path, "--sort", "beauty").returncode == 2
    assert run_tool(tmp_path, "--csv", str(tmp_path / "no" / "folder")).returncode == 2


def read(name: str) -> str:
    return (DATA / name).read_text()


def write_build(directory: Path, logs: dict[str, str]) -> None:
    objects = directory / "CMakeFiles" / "flash_kernels.dir" / "generated"
    objects.mkdir(parents=True, exist_ok=True)
    for unit, text in logs.items():
        (objects / f"{unit}.o.log").write_text(text)


def run_tool(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "--build-dir", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True)
