"""Speedup, scaling, resources and roofline from rows with times that are known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench.ceilings import Ceilings
from flash_lab.waves.plan import plan
from flash_lab.ws_analysis import analysis, resources
from flash_lab.ws_analysis.words import words
from tests.ws_analysis.rows import problems, row

SAY = words("en")
SLOW = [2.0 + 0.001 * n for n in range(8)]
FAST = [1.6 + 0.001 * n for n in range(8)]
LIKE_SLOW = [2.0005 + 0.001 * n for n in range(8)]


@pytest.mark.parametrize(
    ("basic", "pipelined", "verdict", "factor"),
    [
        (SLOW, FAST, "faster", 1.25),
        (FAST, SLOW, "slower", 0.8),
        (SLOW, LIKE_SLOW, "no sure difference", 1.0),
    ],
)
def test_speedup(basic: list[float], pipelined: list[float], verdict: str, factor: float) -> None:
    found = analysis.speedups(
        problems(row("cuda-ws-fp16", 128, basic), row("cuda-ws-pp-fp16", 128, pipelined))
    )
    assert [(s.n_ctx, s.pair[1], s.verdict) for s in found] == [(128, "cuda-ws-pp-fp16", verdict)]
    assert found[0].factor.estimate == pytest.approx(factor, rel=0.005)
    assert verdict in found[0].sentence()


def test_a_few_samples_decide_nothing() -> None:
    rows = (row("triton-ws-fp16", 128, [2.0]), row("triton-ws-pp-fp16", 128, [1.0]))
    (found,) = analysis.speedups(problems(*rows))
    assert found.verdict == "no sure difference"
    assert "too few samples" in found.sentence()


def test_one_of_a_pair_alone_is_no_comparison() -> None:
    alone = problems(row("triton-ws-fp16", 128, SLOW), row("cuda-ws-pp-fp16", 128, FAST))
    assert analysis.speedups(alone) == []
    assert "nothing to compare" in analysis.speedup_section(alone, SAY)[0]


def test_scaling_is_the_ratio_of_the_rates() -> None:
    # 4096 times the work in 1024 times the time: four times the rate.
    shown = analysis.scaling_section(
        problems(row("cudnn", 128, [0.01]), row("cudnn", 1024, [1.0]), row("cudnn", 8192, [10.24])),
        SAY,
    )
    assert "4.00 |" in shown[0]
    assert "4096 times the FLOPs from N_CTX=128 to 8192, at 4.00 times the rate" in shown[1]
    assert (
        "nothing to compare" in analysis.scaling_section(problems(row("fa2", 128, [1.0])), SAY)[0]
    )
    apart = problems(row("fa2", 128, [1.0]), row("cudnn", 8192, [1.0]))
    assert "no provider was measured at both" in analysis.scaling_section(apart, SAY)[0]


def test_the_roofline_takes_the_lower_ceiling() -> None:
    ceilings = Ceilings((("FP16 matmul", 700.0),), (("copy", 4.0),), "measured")
    # 64 FLOP per byte at N 128: 4 TB/s allow 256 TFLOP/s; 4096 at N 8192: the matmul's 700.
    ms = 4 * 32 * 8192**2 * 128 / 350e12 * 1e3
    shown = analysis.roofline_section(
        problems(row("cudnn", 128, [0.01]), row("cudnn", 8192, [ms])), ceilings, SAY
    )
    short, long = (line.split("|")[3:8] for line in shown[0].splitlines()[3:5])
    assert [cell.strip() for cell in (short[0], short[1], short[4])] == [
        "64.0", "256.0", "device memory",
    ]  # fmt: skip
    assert [cell.strip() for cell in long] == ["4096.0", "700.0", "350.00", "50.0", "tensor cores"]
    assert "50.0 % of what the tensor cores allow" in shown[-1]


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "blocks"),
    [
        (168, 384, 163840, 1),  # shared memory: two would need 322 KB
        (168, 384, 1024, 1),  # registers: 168·384 = 64512 of 65536
        (128, 128, 1024, 4),
        (32, 1024, 0, 2),  # threads
        (16, 32, 0, 32),  # the number of blocks
        (255, 384, 0, 0),  # does not fit
        (128, 256, 100 * 1024, 2),
        (64, 128, 113 * 1024, 2),
        (64, 128, 116224, 1),  # 1 KB of each block is the driver's
    ],
)
def test_blocks_that_an_sm_holds(
    registers: int, threads: int, shared: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = SimpleNamespace(
        n_warps=threads // 32, registers=registers, stack_bytes=0, shared_bytes=shared
    )
    monkeypatch.setattr(resources, "compiled_as", lambda *_: compiled)
    problem = AttentionProblem.self_attention(DType.FP16, 1, 8192, 32, 128)
    found = resources.of_gluon("a configuration", problem, ping_pong=True)
    assert found.get("blocks_per_sm", 0) == blocks
    assert ("no SM of compute capability 9.0 holds such a block" in found.get("note", "")) == (
        blocks == 0
    )


def test_resources_and_waves() -> None:
    # 8192 / 128 · 32 = 2048 tiles on 132 SMs: 16 waves, of which the last has 68.
    found = problems(row("triton-ws-fp16", 8192, [1.0]), row("triton-ws-fp16", 128, [1.0]))
    long, short = (problem.ranked[0] for problem in found)
    assert resources.tiles(long) == 2048
    assert resources.wave_plan(long, 132) == plan(2048, 132, 1)
    assert resources.occupancy(long) == pytest.approx(100 * 384 / 2048)
    assert resources.wave_plan(short, 0) is None
    shown = resources.section(found, {"gpu_sms": 132}, SAY)
    cells = [cell.strip() for cell in shown[0].splitlines()[3].strip("|").split("|")]
    assert cells == [
        "triton-ws-fp16",
        "8192",
        "168",
        "0",
        "160.0",
        "1",
        "18.8",
        "2048",
        "16",
        "97.0",
    ]
    assert "N_CTX=128: 32 tiles leave 76% of the places on 132 SMs empty" in shown[1]


def test_a_ragged_length_needs_one_tile_more() -> None:
    (problem,) = problems(row("triton-ws-fp16", 8193, [1.0]))
    assert resources.tiles(problem.ranked[0]) == 65 * 32


def test_spills_are_said_and_unknown_resources_too() -> None:
    plain = row("cudnn", 128, [1.0])
    del plain["blocks_per_sm"]
    spilling = row("triton-ws-fp16", 128, [1.0], spilled_bytes=16)
    shown = "\n".join(resources.section(problems(plain, spilling), {"gpu_sms": 132}, SAY))
    assert "16 bytes a thread are spilled" in shown
    assert "not known without ncu: cudnn" in shown
    assert "no kernel with known" in resources.section(problems(plain), {}, SAY)[0]


def test_resources_of_a_gluon_kernel() -> None:
    """Compiled without a GPU: 128 registers of two groups and of the producer's warpgroup."""
    pytest.importorskip("triton")
    from flash_attention.gluon import configs

    problem = AttentionProblem.self_attention(DType.FP16, 1, 8192, 32, 128)
    config = configs(True, 128)[0]
    found = resources.of_gluon(config, problem, ping_pong=True)
    assert found["threads"] == 384
    assert found["registers"] == 65536 // 384 // 8 * 8
    assert (found["spilled_bytes"], found["blocks_per_sm"]) == (0, 1)
    tiles = 2 * config.BLOCK_M + 2 * config.NUM_BUFFERS * config.BLOCK_N  # of Q and O, K and V
    assert tiles * 256 <= found["shared_bytes"] <= tiles * 256 + 1024


def test_resources_that_cannot_be_had_are_said() -> None:
    pytest.importorskip("triton")
    problem = AttentionProblem.self_attention(DType.FP16, 1, 128, 1, 128)
    found = resources.of_gluon("no configuration", problem, ping_pong=True)
    assert list(found) == ["note"]
    assert "its resources are not known" in found["note"]
