"""The kernels whose bottleneck is known, and the command that judges them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from flash_helpers.build.kernel_ptx import COMMON_FLAGS, run_nvcc
from flash_helpers.compilers.nvcc_wheels import find_or_install_nvcc
from flash_helpers.compilers.ptxas import parse_ptxas
from flash_helpers.compilers.toolchain import find_host_compiler
from flash_lab.bench.ncu_run import NcuError, find_ncu
from flash_lab.profiling import bottleneck as b
from flash_lab.profiling import bottleneck_metrics as m
from flash_lab.profiling import known
from flash_lab.profiling.cli import main
from flash_lab.waves.programs import SOURCES

from .test_bottleneck import CASES, QUIET

RAW = Path(__file__).parents[2] / "docs" / "results" / "raw"
COLUMNS = (
    "ID", "Process ID", "Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
)  # fmt: skip


def ncu_csv(kernels: dict[str, str], *, results: bool = True) -> str:
    """What ncu prints for kernels (symbol -> bottleneck), with the lines of the program before."""
    text = io.StringIO()
    if results:
        text.writelines(f"{name}: right\n" for name in known.KNOWN.values())
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, (symbol, name) in enumerate(kernels.items()):
        for metric, value in (QUIET | CASES[name]).items():
            unit = "%" if metric in m.PERCENTAGES else ""
            row = (number, 1, f"{symbol}(unsigned int *, int)", "Command line profiler metrics")
            writer.writerow((*row, metric, unit, f"{value:,.2f}"))
    return text.getvalue()


def test_every_kernel_has_its_file_and_its_case() -> None:
    assert len(known.KNOWN) == 5
    program = (SOURCES / "known_main.cpp").read_text()
    for symbol, name in known.KNOWN.items():
        assert 'extern "C" __global__ void' in (SOURCES / f"{symbol}.cu").read_text()
        assert f'{{"{name}", ' in program


@pytest.mark.parametrize("symbol", known.KNOWN)
def test_only_the_spilling_kernel_spills(symbol: str, tmp_path: Path) -> None:
    flags = [*COMMON_FLAGS, "-arch=sm_90", "-ccbin", str(find_host_compiler().path)]
    files = ["-cubin", str(SOURCES / f"{symbol}.cu"), "-o", str(tmp_path / "kernel.cubin")]
    log = run_nvcc(find_or_install_nvcc(), [*flags, "-Xptxas", "-v", *files], symbol)
    (usage,) = parse_ptxas(log)
    assert usage.kernel == symbol
    assert usage.spills == (known.KNOWN[symbol] == b.SPILLING)


def test_the_command_judges_a_recorded_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "known.csv"
    record.write_text(ncu_csv(known.KNOWN))
    assert main(["bottleneck", "--known", "--csv", str(record)]) == 0
    assert (
        capsys.readouterr().out.count("right  known_") == 10
    )  # with its paragraph, and in the end
    assert main(["bottleneck", "--csv", str(record)]) == 0
    # One kernel behaves like another: it is not what its name says.
    record.write_text(ncu_csv(known.KNOWN | {"known_spilling": b.ISSUE}))
    assert main(["bottleneck", "--known", "--csv", str(record)]) == 1
    assert "WRONG  known_spilling: named issue-bound" in capsys.readouterr().out
    # One is missing.
    record.write_text(ncu_csv({k: v for k, v in known.KNOWN.items() if v != b.TENSOR}))
    assert main(["bottleneck", "--known", "--csv", str(record)]) == 1
    assert "named nothing (ncu did not profile it)" in capsys.readouterr().out
    # The program did not say that its results were right.
    record.write_text(ncu_csv(known.KNOWN, results=False))
    assert main(["bottleneck", "--known", "--csv", str(record)]) == 4


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.csv"
    assert main(["bottleneck", "--csv", str(missing)]) == 4
    assert "No such file" in capsys.readouterr().err
    missing.write_text("no table\n")
    assert main(["bottleneck", "--csv", str(missing)]) == 4
    missing.write_text(ncu_csv({"a": b.MEMORY, "b": b.CACHE}).replace(m.L2, "other", 1))
    assert main(["bottleneck", "--csv", str(missing)]) == 3
    assert f"not explained: {m.L2} is absent" in capsys.readouterr().out
    for wrong in ([], ["--known", "--", "true"]):
        with pytest.raises(SystemExit) as stopped:
            main(["bottleneck", *wrong])
        assert stopped.value.code == 2


def test_a_command_without_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU", "/nonexistent/ncu")
    assert main(["bottleneck", "true"]) == 4


def test_the_recorded_runs(tmp_path: Path) -> None:
    """What ncu counted on an H200 (docs/results/profiling-h200.md), read anew."""
    records = sorted(RAW.glob("*-known-bottlenecks.csv"))
    assert records
    for record in records:
        assert main(["bottleneck", "--known", "--csv", str(record)]) == 0
    spills, memory = "known_spilling", "known_memory_bound"
    text = records[0].read_text()
    exchanged = text.replace(spills, "X").replace(memory, spills).replace("X", memory)
    (tmp_path / "wrong.csv").write_text(exchanged)
    assert main(["bottleneck", "--known", "--csv", str(tmp_path / "wrong.csv")]) == 1


@pytest.mark.gpu
def test_the_kernels_on_this_gpu() -> None:
    try:
        find_ncu(None)
    except NcuError as error:
        pytest.skip(str(error))
    assert main(["bottleneck", "--known"]) == 0
