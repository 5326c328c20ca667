"""Any length and mask: which kernels the tools run for it on a build and in the emulator, and which
of a configuration's two kernels they say it was."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.check.reference import attention_reference
from flash_helpers.kernel_configs import (
    DType,
    FlashForwardKernelConfig,
    KernelConfig,
    PreviousKernelConfig,
    get_kernel_configs,
    get_sm80_kernel_configs,
    has_general_kernel,
    has_kernel_for,
    launched_symbol,
)
from flash_helpers.kernels.contract import Variant
from flash_lab.bench.ncu import NcuCase
from flash_lab.bench.ncu_rows import Verdict, read_verdicts
from flash_lab.correctness import report
from flash_lab.correctness.runner import PASS, Options, Session
from flash_lab.correctness.selection import partition
from tests.acceptance.cli import gate_jobs, make_parser
from tests.warm_python import run_script

ROOT = Path(__file__).resolve().parents[2]
ALL = [*get_kernel_configs("all"), *get_kernel_configs("pairs")]
PLAIN, *_, FAST = get_sm80_kernel_configs("prog")
MORE_THAN_BLOCKS = pytest.mark.parametrize(("seq_len", "causal"), [(1000, False), (1024, True)])


def test_which_of_two_kernels_a_problem_needs() -> None:
    assert FAST.variant_for(128, 64, causal=False) is Variant.WHOLE
    for problem in ((100, 64, False), (128, 65, False), (128, 64, True), (128, 0, False)):
        assert FAST.variant_for(*problem) is Variant.ANY
        assert launched_symbol(FAST, *problem) == FAST.symbol(Variant.ANY)
        assert has_kernel_for(FAST, *problem) and not has_kernel_for(PLAIN, *problem)
        assert has_kernel_for(PLAIN, *problem, emulated=True)
    hopper = get_kernel_configs("hopper")[0]
    assert launched_symbol(hopper, 1, 0, True) == hopper.kernel_name()


@MORE_THAN_BLOCKS
def test_a_build_has_the_general_kernels_of_the_fast_configurations(
    seq_len: int, causal: bool
) -> None:
    kept, skipped = partition(ALL, seq_len, causal=causal)
    expected = [c for c in ALL if has_general_kernel(c) or c.FAMILY == "sm90"]
    assert kept == expected and len(kept) + len(skipped) == len(ALL)
    for item in skipped:
        if item.config.GRADIENTS:
            assert item.reason == "it computes gradients, and this tool runs forward passes"
            continue
        if item.config.SERVES:
            assert item.reason == "it serves caches and lengths, and this tool runs forward passes"
            continue
        assert ("no build has" in item.reason) != isinstance(item.config, PreviousKernelConfig)


@MORE_THAN_BLOCKS
def test_the_emulator_has_both_kernels_of_every_configuration(seq_len: int, causal: bool) -> None:
    """But of earlier steps, whose bodies take whole blocks alone."""
    kept, skipped = partition(ALL, seq_len, causal=causal, emulated=True)
    runs_once = [c for c in ALL if not c.GRADIENTS and not c.SERVES]
    assert kept == [c for c in runs_once if not isinstance(c, PreviousKernelConfig)]
    steps = [item for item in skipped if item.config in runs_once]
    assert steps and all("no earlier step has" in item.reason for item in steps)


def forward(config: KernelConfig, q: Any, k: Any, v: Any, o: Any, causal: bool = False) -> Any:
    return o.copy_(attention_reference(q, k, v, causal=causal)[0])


@pytest.mark.parametrize(
    ("seq_len", "causal", "general"), [(64, False, False), (65, False, True), (64, True, True)]
)
def test_rows_say_which_kernel_ran(seq_len: int, causal: bool, general: bool) -> None:
    options = Options("cpu", 1, 1, seq_len, seed=1, n_runs=1, causal=causal)
    rows = list(Session(options, forward).run([FAST, PLAIN], ["v2"]))
    assert {row.status for row in rows} == {PASS}
    text = report.render_csv(rows, options)
    symbols = [row["symbol"] for row in csv.DictReader(io.StringIO(text))]
    variant = Variant.ANY if general else Variant.WHOLE
    assert symbols == ["", FAST.symbol(variant), PLAIN.symbol(variant)]
    notes = [line for line in report.render_details(rows, []) if "general kernel" in line]
    assert len(notes) == general
    assert read_verdicts(text)[FAST.kernel_name()] == Verdict("pass", "")


@pytest.mark.parametrize("config", [PLAIN, FAST], ids=["plain", "fast"])
def test_run_kernels_runs_any_length_in_the_emulator(config: FlashForwardKernelConfig) -> None:
    """The whole path: a plain configuration has no general kernel in a build."""
    command = ["tools/benchmark/run_kernels.py", "70", "--device", "emulator"]
    ran = run_script(
        [*command, "--n_runs", "1", "--csv", "--kernels", config.short_form()], cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    (row,) = csv.DictReader(io.StringIO(ran.stdout))
    assert row["status"] == "pass" and row["symbol"] == config.symbol(Variant.ANY)


def test_the_emulator_runs_what_a_build_has_not() -> None:
    """Causal, too, of a configuration that no build has with it."""
    q, k, v = (torch.randn(1, 70, 1, PLAIN.d_head).half() for _ in range(3))
    reference, _ = attention_reference(q, k, v, causal=True)
    o = flash_attention.forward(PLAIN, q, k, v, causal=True)
    torch.testing.assert_close(o.float(), reference.float(), atol=4e-3, rtol=0)


def test_ncu_profiles_general_kernels() -> None:
    case = NcuCase.of([PLAIN, FAST], 1000, 128, 2, 16, 3, 2, ["ours"])
    assert case.configs == (FAST,)
    assert [item.config for item in case.skipped] == [PLAIN]


def test_the_gate_takes_general_kernels() -> None:
    options = make_parser().parse_args(["gate", "--out", "x", "--seq_lens", "2600"])
    options.kernels = ["prog"]
    assert [(job.kernel, job.symbol) for job in gate_jobs(options)] == [
        (c.short_form(), c.symbol(Variant.ANY))
        for c in get_kernel_configs("prog")
        if has_general_kernel(c) and c.dtype is DType.FP16
    ]
