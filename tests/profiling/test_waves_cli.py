"""Occupancy, our kernels' blocks, the `waves` command, and the warnings in the tuner's output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernel_configs import get_kernel_configs, parse_kernel_name_into_config
from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from flash_lab.bench import autotune_cli, report_cli
from flash_lab.bench.objective import Objective
from flash_lab.bench.records import encode
from flash_lab.bench.report import wave_warning
from flash_lab.bench.results import Measurement
from flash_lab.bench.row import Row
from flash_lab.bench.sweep import make_case
from flash_lab.bench.tuning import Winner
from flash_lab.profiling.cli import main
from flash_lab.waves.kernels import n_blocks, of_compiler, of_driver, residency
from flash_lab.waves.occupancy import occupancy
from flash_lab.waves.subjects import attention

FAST = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"
HOPPER = "(FP16, 128, 128, 128, 2, 2, 1): hopper+lazy+overlap+pingpong"


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "limiter"),
    [
        ((9, 0), 128, 181, 49152, 2, "registers"),  # as the driver says on an H200
        ((9, 0), 384, 168, 200 * 1024, 1, "registers"),
        ((9, 0), 64, 24, 227 * 1024, 1, "shared memory"),
        ((9, 0), 1024, 32, 0, 2, "registers"),
        ((9, 0), 32, 16, 0, 32, "blocks"),
        ((8, 0), 256, 32, 0, 8, "registers"),
        ((8, 6), 256, 32, 0, 6, "threads"),
        ((8, 0), 128, 64, 40 * 1024, 4, "shared memory"),
    ],
)
def test_occupancy(
    capability: tuple[int, int], threads: int, registers: int, shared: int, blocks: int,
    limiter: str,
) -> None:  # fmt: skip
    found = occupancy(capability, threads, registers, shared)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert 0 < found.occupancy <= 1


def test_occupancy_refuses_what_no_gpu_holds() -> None:
    with pytest.raises(ValueError, match="shared memory are too many"):
        occupancy((9, 0), 128, 32, 228 * 1024)
    with pytest.raises(ValueError, match=r"7\.5 is not known: expected one of 8\.0"):
        occupancy((7, 5), 128, 32, 0)
    with pytest.raises(ValueError, match=r"expected 1\.\.1024 threads"):
        occupancy((9, 0), 2048, 32, 0)


def test_blocks_of_our_kernels() -> None:
    fast, hopper = map(parse_kernel_name_into_config, (FAST, HOPPER))
    assert n_blocks(fast, 2, 16, 1000) == 2 * 16 * 16
    assert n_blocks(hopper, 2, 16, 1000) == 2 * 16 * 8
    assert residency(hopper).blocks_per_sm == 1
    assert residency(fast).blocks_per_sm == 2  # computed here, or the driver's own on a GPU
    # Gradients: tiles of 128 keys, drawn by thread blocks that stay, or a thread block each.
    in_order, copies = (
        FusedBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 2, add_by)
        for add_by in (AddBy.IN_ORDER, AddBy.COPIES)
    )
    two_passes = HopperBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 128, 128, 3)
    assert n_blocks(in_order, 2, 16, 1000) == n_blocks(copies, 2, 16, 1000) == 2 * 16 * 8
    assert n_blocks(two_passes, 2, 16, 1000) == 2 * 16 * 8
    assert residency(in_order).origin == residency(copies).origin == residency(hopper).origin
    assert residency(two_passes).origin != residency(hopper).origin
    with pytest.raises(ValueError, match="computes gradients: expected a forward kernel"):
        attention(copies, 128, 1)


@pytest.mark.gpu
def test_occupancy_is_what_the_driver_says() -> None:

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("computed for compute capability 9.0")
    configs = [c for c in get_kernel_configs("prog") if c.dtype is DType.FP16]
    whole = Variant.WHOLE
    pairs = [(of_driver(c, whole), of_compiler(c, whole)) for c in configs]
    known = [(a.blocks_per_sm, b.blocks_per_sm) for a, b in pairs if a is not None]
    assert known and all(a == b for a, b in known)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["waves", "--blocks", "132,133", "--sms", "132"]) == 0
    output = capsys.readouterr().out
    assert "132 blocks on 132 SMs x 1 = 1.00 waves" in output
    assert output.count("warning:") == 1 and "131 of 132 SMs idle" in output
    resources = ["--threads", "128", "--registers", "181", "--shared_bytes", "49152"]
    assert main(["waves", "--blocks", "528", "--sms", "132", *resources]) == 0
    assert "528 blocks on 132 SMs x 2 = 2.00 waves" in capsys.readouterr().out
    kernel = ["--kernel", FAST, "--sms", "132", "--heads", "1", "--batch", "1"]
    assert main(["waves", *kernel, "--seq_lens", "512,8448"]) == 0
    output = capsys.readouterr().out
    assert "seq 512, batch 1, heads 1: 8 blocks" in output and output.count("warning:") == 1


def test_a_length_that_no_block_divides_takes_the_general_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whose registers are others: it is asked for by itself, once."""
    kernel = ["--kernel", FAST, "--sms", "132", "--heads", "1", "--batch", "1"]
    assert main(["waves", *kernel, "--seq_lens", "512,1000,1001"]) == 0
    output = capsys.readouterr().out
    assert output.count(f"{FAST}: ") == 1 and output.count(f"{FAST}, general kernel: ") == 1
    assert output.count("heads 1: 16 blocks") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--blocks", "0"],
        ["--blocks", "1", "--kernel", FAST],
        ["--kernel", "tune"],
        ["--kernel", "nonsense"],
        ["--blocks", "1", "--registers", "255", "--threads", "1024"],
        ["--blocks", "1", "--compute_capability", "7.0"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["waves", *arguments])
    assert stopped.value.code == 2


def test_no_curve_without_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["waves", "--measure"]) == 4


def row(n_heads: int, **changes: Any) -> Row:
    shape = {"dtype": "FP16", "d_head": 128, "seq_len": 512, "batch": 1, "n_heads": n_heads,
             "n_kv_heads": n_heads, "causal": False, "seed": 1}  # fmt: skip
    record = {
        "kernel": FAST, "provider": "ours", "label": FAST, "status": "ok", "key": "k",
        "shape": shape, "samples_ms": [1.0, 1.01, 0.99, 1.0], "bursts": [2, 2], "throttled": {},
        "blocks_per_sm": 2, "environment": {"gpu": "NVIDIA H200", "gpu_sms": 132},
    }  # fmt: skip
    return Row.from_json(record | changes)


def test_the_warning_about_a_row() -> None:
    assert wave_warning(row(16)) == ""  # 128 blocks for 132 SMs
    assert "60 of 132 SMs idle" in wave_warning(row(9))
    assert wave_warning(row(9, environment={"gpu": "unknown"})) == ""
    causal = row(9, shape=row(9).shape | {"causal": True})
    assert wave_warning(causal) == ""


def test_the_tuner_says_it() -> None:
    def said(n_heads: int) -> str:
        best = Measurement((row(n_heads),))
        problem = AttentionProblem.self_attention(DType.FP16, 1, 512, n_heads, 128)
        case = make_case(problem, 1, [], ["ours"])
        return autotune_cli.describe(Winner(case, Objective(), [best], [], []))

    assert "\n  warning: its last wave leaves 60 of 132 SMs idle" in said(9)
    assert "warning" not in said(16)


def test_the_page_says_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for n_heads, count in ((9, 1), (16, 0)):
        run, out = tmp_path / f"{n_heads}.jsonl", tmp_path / "page.html"
        run.write_bytes(encode(row(n_heads).to_json()))
        assert report_cli.main([str(run), "--out", str(out)]) == 0
        assert out.read_text().count("its last wave leaves 60 of 132 SMs idle") == count
