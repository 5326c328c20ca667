"""The seed's block, and figures that a reader can trust."""

from __future__ import annotations

import pytest

from flash_lab.ws_analysis import text
from flash_lab.ws_analysis.words import words
from tests.ws_analysis.rows import problems, row

# The example of the seed, with the figures that follow from its shape and time.
CHINESE = """\
================================================================================
AutoTune 最佳配置信息 - triton-ws-fp16
形状: BATCH=1, H=32, N_CTX=128, HEAD_DIM=128
执行时间: 0.234 ms
================================================================================
最佳配置参数:
  BLOCK_M: 128
  BLOCK_N: 128
  NUM_BUFFERS: 2
  NUM_MMA_WARPS: 8
  NUM_MMA_GROUPS: 2
  num_warps: 4
  num_stages: 0
  理论FLOPS: 0.000268 TFLOPS
  实际性能: 1.15 TFLOPS
  内存带宽: 17.92 GB/s"""
ENGLISH = """\
================================================================================
AutoTune best configuration - triton-ws-fp16
shape: BATCH=1, H=32, N_CTX=128, HEAD_DIM=128
execution time: 0.234 ms
================================================================================
best parameters:
  BLOCK_M: 128
  BLOCK_N: 128
  NUM_BUFFERS: 2
  NUM_MMA_WARPS: 8
  NUM_MMA_GROUPS: 2
  num_warps: 4
  num_stages: 0
  theoretical FLOPs: 0.000268 TFLOPS
  achieved: 1.15 TFLOPS
  memory bandwidth: 17.92 GB/s"""


@pytest.mark.parametrize(("language", "expected"), [("zh", CHINESE), ("en", ENGLISH)])
def test_the_block_of_the_seed(language: str, expected: str) -> None:
    # 4·32·128²·128 = 2.684e8 FLOP in 0.234 ms; 4·32·128·128 elements of 2 bytes.
    (problem,) = problems(row("triton-ws-fp16", 128, [0.234, 0.234]))
    assert text.configuration_block(problem.ranked[0], words(language)) == expected


def test_parameters_of_its_own_stand_between() -> None:
    mixed = {"num_stages": 0, "MMA_REGS": 240, "num_warps": 4, "BLOCK_N": 64, "BLOCK_M": 128}
    (problem,) = problems(row("triton-ws-fp16", 128, [1.0], parameters=mixed))
    names = [name for name, _ in text.parameters(problem.ranked[0])]
    assert names == ["BLOCK_M", "BLOCK_N", "MMA_REGS", "num_warps", "num_stages"]


@pytest.mark.parametrize(
    ("value", "decimals", "expected"),
    [
        (0.234, 3, "0.234"), (12.3456, 3, "12.346"), (0.00512, 3, "0.00512"), (0.05, 2, "0.0500"),
        (0.0, 2, "0.00"), (1234.5, 2, "1234.50"), (-0.0012, 2, "-0.00120"), (0.5, 2, "0.500"),
    ],
)  # fmt: skip
def test_three_digits_at_least(value: float, decimals: int, expected: str) -> None:
    assert text.fixed(value, decimals) == expected


def test_the_table_has_the_figures_of_the_seed() -> None:
    shown = text.performance_table(problems(row("cudnn", 8192, [2.0, 2.0])), words("zh"))
    header, line = (
        [cell.strip() for cell in shown.splitlines()[n].strip("|").split("|")] for n in (1, 3)
    )
    found = dict(zip(header, line, strict=True))
    assert found["执行时间 (ms)"] == "2.000"
    assert float(found["TFLOPS"]) == pytest.approx(4 * 32 * 8192**2 * 128 / 2e-3 / 1e12, abs=0.01)
    assert float(found["内存带宽 (GB/s)"]) == pytest.approx(
        4 * 32 * 8192 * 128 * 2 / 2e-3 / 1e9, abs=0.01
    )
    assert found["内存使用 (MB)"] == "20.0"


def test_what_was_not_measured_is_said() -> None:
    failed = row("fa4", 128, [], status="skipped", error="not installed")
    flash = row("fa2", 128, [1.0], label="PyTorch FlashAttention-2")
    lines = text.not_measured(problems(row("cudnn", 128, [1.0], tuned="by hand"), flash, failed))
    assert lines == [
        "N_CTX=128: fa4: skipped: not installed", "fa2 is PyTorch FlashAttention-2",
        "N_CTX=128: cudnn: by hand",
    ]  # fmt: skip


def test_every_word_has_both_languages() -> None:
    from flash_lab.ws_analysis import words as module

    for key, (english, chinese) in module.WORDS.items():
        assert english.isascii(), key
        assert chinese, key
    with pytest.raises(KeyError):
        words("zh")("no such word")
