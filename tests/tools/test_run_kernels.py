"""run_kernels.py from the outside: arguments, output, exit codes. The package is a stand-in."""

from __future__ import annotations

import csv
import io
import os
import subprocess
from pathlib import Path

import pytest

from flash_helpers.kernel_configs import get_kernel_configs, parse_kernel_name_into_config
from tests.warm_python import run_script

REPOSITORY = Path(__file__).resolve().parents[2]
TOOL = REPOSITORY / "tools" / "benchmark" / "run_kernels.py"
PROG = get_kernel_configs("prog")
SMALL = PROG[0].short_form().replace("128, 64, 64, 4", "64, 64, 64, 4")

STAND_IN = """
import os
from flash_helpers.check.reference import attention_reference

class KernelNotBuiltError(ValueError):
    pass

def forward(config, q, k, v, o=None):
    if os.environ.get("INTERRUPT") and config.swizzled:
        raise KeyboardInterrupt
    if os.environ.get("NOT_BUILT", "-") in config.short_form():
        raise KernelNotBuiltError("it is not in this build; the nearest is Z")
    scale = 2.0 if os.environ.get("WRONG", "-") in config.short_form() else 1.0
    return o.copy_(scale * attention_reference(q, k, v)[0])
"""


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stand_in")
    (folder / "flash_attention").mkdir()
    (folder / "flash_attention" / "__init__.py").write_text(STAND_IN)
    return folder


def run(package: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("KERNELS", "PYTHONPATH")}
    path = {"PYTHONPATH": f"{package}:{REPOSITORY / 'py'}"}
    return run_script([TOOL, *arguments], clean | path | environment)


def names(output: str) -> list[str]:
    """The kernels of the printed table, read back from its rows."""
    rows = [line for line in output.splitlines() if line.startswith("| (")]
    return [parse_kernel_name_into_config(line).short_form() for line in rows]


def test_the_environment_selects_and_everything_is_checked(package: Path) -> None:
    ran = run(package, "64", "128", "--device", "emulator", "--n_runs", "2", KERNELS="prog")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert names(ran.stdout) == [config.short_form() for config in PROG]
    assert ran.stdout.startswith("emulator on the CPU; batch 1, heads 1, seq 64; 2 run(s) each;")
    assert ran.stdout.splitlines()[-1].startswith("7 kernel(s) selected: 7 passed, 0 failed")


def test_the_printed_seed_repeats_a_run(package: Path) -> None:
    arguments = ("64", "--kernels", SMALL, "--device", "emulator")
    first = run(package, *arguments)
    seed = first.stdout.partition("--seed ")[2].partition(")")[0]
    assert run(package, *arguments, "--seed", seed).stdout == first.stdout
    assert run(package, *arguments).stdout != first.stdout


def test_kernels_by_name_references_and_csv(package: Path) -> None:
    ran = run(
        package, "64", "--ref", "--ref_v3", "--csv", "--seed", "3", "--device", "emulator",
        "--kernels", f"{SMALL}; {PROG[1].kernel_name()}", "--kernels", SMALL,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    records = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [record["kernel"] for record in records] == [
        "v2: fp32 reference (FP16, 64)", "v2: fp32 reference (FP16, 128)",
        "v3: fp32 reference (FP16, 64)", "v3: fp32 reference (FP16, 128)",
        SMALL, PROG[1].short_form(),
    ]  # fmt: skip
    assert {record["status"] for record in records} == {"pass"}
    assert "2 kernel(s) selected: 2 passed" in ran.stderr
    assert "note  v2: fp32 reference (FP16, 64): v2 needs a GPU" in ran.stderr


@pytest.mark.parametrize(
    ("environment", "code", "message"),
    [
        ({"WRONG": "buffer+opt"}, 1, "FAIL  (FP16, 128, 64, 64, 4): async+eager+swizzled+load_2"),
        ({"NOT_BUILT": "buffer+opt"}, 3, "KernelNotBuiltError: it is not in this build; the near"),
        ({"NOT_BUILT": "FP16"}, 4, "0 passed, 0 failed, 7 not run, 0 skipped"),
        ({"INTERRUPT": "1"}, 130, "1 passed, 0 failed, 0 not run, 0 skipped, 6 not reached"),
    ],
)
def test_exit_codes_of_runs(
    package: Path, environment: dict[str, str], code: int, message: str
) -> None:
    ran = run(package, "64", "--kernels", "prog", "--device", "emulator", **environment)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert message in ran.stdout and "Traceback" not in ran.stderr


def test_skipped_kernels_are_said_and_counted(package: Path) -> None:
    ran = run(package, "64", "64", "--device", "emulator", "--kernels", "prog", SMALL)
    assert ran.returncode == 0 and names(ran.stdout) == [SMALL]
    assert "skipped  7 kernel(s): its d_head 128 is not 64" in ran.stdout
    assert "8 kernel(s) selected: 1 passed, 0 failed, 0 not run, 7 skipped" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("96", "--version", "3,7"),
            "2 kernel(s): sequence 96 is not divisible by its B_r = 64, and no earlier step has a "
            "general kernel of it",
        ),
        (("64", "96"), "7 kernel(s): its d_head 128 is not 96"),
        (("64", "--dtype", "bf16"), "7 kernel(s): its dtype is not BF16"),
    ],
)
def test_an_empty_selection_is_no_success(
    package: Path, arguments: tuple[str, ...], reason: str
) -> None:
    ran = run(package, *arguments, "--device", "emulator", KERNELS="prog")
    assert ran.returncode == 4 and reason in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0",), "'0' is not a positive integer"),
        (("64", "-1"), "'-1' is not a positive integer"),
        (("٦٤",), "is not a positive integer"),
        (("--n_runs", "0"), "is not a positive integer"),
        (("--dtype", "fp32"), "expected one of FP16 (5), BF16 (15)"),
        (("--kernels", "progGARBAGE"), "expected one of prog, progall, all, tune"),
        (("--kernels", "prog", "64", "128"), "seq_len and d_head go before --kernels"),
        (("--kernels", "prog; rm -rf x"), "'rm -rf x' is not valid"),
        (("--device", "tpu"), "invalid choice"),
        (("--seed", "x"), "is not a seed"),
        (("--n_run", "2"), "unrecognized arguments"),
    ],
)
def test_usage_errors(package: Path, arguments: tuple[str, ...], message: str) -> None:
    ran = run(package, *arguments)
    assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr


def test_a_bad_environment_variable_is_a_usage_error(package: Path) -> None:
    ran = run(package, KERNELS="1,1")
    assert ran.returncode == 2 and "KERNELS '1,1' selects no kernel" in ran.stderr


def test_a_package_that_does_not_import_is_reported(tmp_path: Path) -> None:
    (tmp_path / "flash_attention.py").write_text("raise ImportError('libx.so is missing')")
    ran = run(tmp_path, "64", "--kernels", "prog", "--device", "emulator")
    assert ran.returncode == 4 and "cannot be imported: ImportError: libx.so" in ran.stderr


def test_cuda_where_there_is_none(package: Path) -> None:
    ran = run(package, "--kernels", "prog", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert ran.returncode == 4 and "try --device emulator" in ran.stderr


def test_help(package: Path) -> None:
    ran = run(package, "--help")
    assert ran.returncode == 0 and "130 interrupted" in ran.stdout


def test_the_real_kernels_in_the_emulator() -> None:
    """The whole path once: configuration, PTX, emulator, check."""
    ran = run(REPOSITORY, "64", "--device", "emulator", "--kernels", PROG[6].short_form())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert names(ran.stdout) == [PROG[6].short_form()]
    assert "1 kernel(s) selected: 1 passed" in ran.stdout
