"""`--mode nvtx` on the CPU: the seed's range names, in a trace that any viewer reads."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flash_attention.triton_kit.tuning import NotTunedError
from flash_helpers.check.reference import attention_reference
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench.measure import SkippedError
from flash_lab.profiling.trace import parse as parse_trace
from flash_lab.ws_analysis import checking, nvtx_mode, providers
from flash_lab.ws_analysis.options import parse

SHAPE = ["--batch", "2", "--heads", "3", "--head_dim", "64", "--n_ctx", "32,48"]
Forward = Callable[..., torch.Tensor]
PACKAGED = Path(__file__).parents[2] / "flash_attention" / "tuning_default.json"


def right(q: Any, k: Any, v: Any, *, ping_pong: bool, causal: bool, config: Any, out: Any) -> Any:
    return out.copy_(attention_reference(q, k, v, causal=causal)[0])


def install(
    monkeypatch: pytest.MonkeyPatch, forward: Forward, *, cached: bool = False
) -> list[str]:
    """A module in flash_attention.gluon's place; what it was asked for."""
    asked: list[str] = []
    config = SimpleNamespace(
        num_warps=4, num_stages=0, as_dict=lambda: {"BLOCK_M": 128, "FENCE": "pmevent"}
    )

    def best_config(*_: Any, ping_pong: bool, causal: bool, measure_now: bool) -> Any:
        asked.append(f"best {ping_pong}{'' if measure_now else ', of the cache'}")
        if not (measure_now or cached):
            raise NotTunedError("nothing was measured yet")
        failed = () if ping_pong else (({"BLOCK_M": 192}, "out of resources"),)
        return SimpleNamespace(config=config, milliseconds=1.0, cached=cached, failed=failed)

    def configs(ping_pong: bool, d_head: int) -> list[Any]:
        asked.append(f"configs {ping_pong} {d_head}")
        return [config]

    module = SimpleNamespace(forward=forward, best_config=best_config, configs=configs)
    monkeypatch.setitem(sys.modules, "flash_attention.gluon", module)
    return asked


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    return tmp_path


def trace(*arguments: str) -> int:
    return nvtx_mode.trace(parse(["--mode", "nvtx", *SHAPE, *arguments]), "cpu")


def test_names() -> None:
    from flash_helpers.base.dtypes import DType

    w = AttentionProblem.self_attention(DType.FP16, 1, 8192, 32, 128)
    assert nvtx_mode.bench_range("triton-ws-fp16", w) == "bench_triton-ws-fp16_B1_H32_N8192_D128"
    assert nvtx_mode.attention_range("triton-ws-fp16", w) == "attention_ws_B1_H32_N8192_D128"
    assert nvtx_mode.attention_range("triton-ws-pp-fp16", w) == "attention_ws_pp_B1_H32_N8192_D128"
    assert nvtx_mode.attention_range("cuda-ws-pp-fp16", w) == "attention_ws_pp_B1_H32_N8192_D128"
    assert nvtx_mode.attention_range("cudnn", w) == "attention_cudnn_B1_H32_N8192_D128"


def test_a_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = install(monkeypatch, right)
    assert trace() == 0
    assert asked == ["best False", "best True"] * 2
    said = capsys.readouterr()
    assert "torch.profiler records the same ranges" in said.err
    events = json.loads((folder / "nvtx_profile.trace.json").read_text())["traceEvents"]
    found = [e for e in events if re.match("bench_|attention_", e.get("name", ""))]
    for n in (32, 48):
        for provider, kind in (("triton-ws-fp16", "ws"), ("triton-ws-pp-fp16", "ws_pp")):
            (outer,) = (e for e in found if e["name"] == f"bench_{provider}_B2_H3_N{n}_D64")
            inner = [e for e in found if e["name"] == f"attention_{kind}_B2_H3_N{n}_D64"]
            assert len(inner) == 5
            for event in inner:
                assert outer["ts"] <= event["ts"]
                assert event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + 1
            assert outer["name"] in said.out
    assert len(found) == 4 * 6


def test_kernels_count_in_the_ranges_that_launched_them() -> None:
    """A trace as a GPU's: kernels run when the range is long over, and torch.profiler's own spans
    on the GPU miss some of them."""
    from flash_helpers.base.dtypes import DType

    def event(kind: str, name: str, begin: float, us: float, id: int = 0) -> dict[str, Any]:
        return {"ph": "X", "cat": kind, "name": name, "tid": 1, "ts": begin, "dur": us,
                "args": {"correlation": id}}  # fmt: skip

    w = AttentionProblem.self_attention(DType.FP16, 1, 128, 32, 128)
    outer, inner = nvtx_mode.bench_range("fa2", w), nvtx_mode.attention_range("fa2", w)
    calls = [
        event(*call)
        for i in range(5)
        for call in (
            ("user_annotation", inner, 10.0 + 100 * i, 50.0),
            ("cuda_runtime", "cudaLaunchKernel", 20.0 + 100 * i, 5.0, i),
            ("kernel", "attention", 9000.0 + 100 * i, 60.0, i),
        )
    ]
    others = [
        event("user_annotation", outer, 0, 2000),
        event("gpu_user_annotation", outer, 9000, 10),
        event("cuda_runtime", "cudaLaunchKernel", 1500, 5, 7),
        event("kernel", "fill", 9900, 200, 7),
        event("cuda_runtime", "cudaLaunchKernel", 2500, 5, 8),
        event("kernel", "of nobody", 9950, 400, 8),
    ]
    prepared = nvtx_mode.Prepared("fa2", w, providers.Bound(lambda: torch.empty(0), "", {}))
    table = nvtx_mode.ranges_table(parse_trace([*calls, *others]), [prepared], "en")
    shown = table.splitlines()[3:5]
    assert [[cell.strip() for cell in line.split("|")[1:5]] for line in shown] == [
        [outer, "1", "2.000", "0.500"], [inner, "5", "0.250", "0.300"],
    ]  # fmt: skip


def test_a_trace_elsewhere_in_chinese(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, right)
    arguments = ("--trace", "other.json", "--lang", "zh", "--provider", "triton-ws-fp16")
    assert trace(*arguments, "--causal") == 0
    assert [path.name for path in folder.iterdir()] == ["other.json"]
    shown = capsys.readouterr().out
    assert "NVTX标记" in shown
    assert "bench_triton-ws-fp16_B2_H3_N32_D64" in shown
    assert trace("--trace", "no/such/folder.json", "--provider", "triton-ws-fp16") == 2


def test_under_nsys_nothing_else_records(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, right)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    assert trace() == 0
    assert not list(folder.iterdir())
    assert "in nsys's report" in capsys.readouterr().out


def test_a_wrong_kernel_is_not_traced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*tensors: Any, ping_pong: bool, **others: Any) -> Any:
        output = right(*tensors, ping_pong=ping_pong, **others)
        if ping_pong:
            output[-1, -1, -1] = 0.0  # the last row of the last head alone
        return output

    install(monkeypatch, wrong)
    assert trace() == 1
    said = capsys.readouterr()
    assert "wrong: triton-ws-pp-fp16, N_CTX=32: 1 of " in said.err
    assert "bench_triton-ws-pp" not in (folder / "nvtx_profile.trace.json").read_text()


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ((0, 3, 0, 5), 9.0, "1 of "),
        ((2, 3, 7, 5), 9.0, "1 of "),  # the last entry, the last head
        ((1, 3, 0, 5), 9.0, ""),  # compared are the first and the last entry
        ((2, 3, 4, 5), 9.0, ""),  # and of each the first and the last head
        ((1, 3, 4, 5), float("nan"), "NaN or infinity"),
    ],
)
def test_what_is_compared(place: tuple[int, ...], value: float, expected: str) -> None:
    q, k, v = (torch.randn(3, 16, 8, 64).half() for _ in range(3))
    judge = checking.judge_of((q, k, v), False, heads=1)
    output = attention_reference(q, k, v)[0].half()
    assert judge.problem_with(output) == ""
    output[place] = value
    problem = judge.problem_with(output)
    assert problem.startswith(expected) if expected else problem == ""


def test_what_was_not_written_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(*_: Any, out: Any, **__: Any) -> Any:
        return out

    install(monkeypatch, idle)
    assert trace() == 1


def test_a_kernel_that_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raising(*tensors: Any, ping_pong: bool, **others: Any) -> Any:
        if ping_pong:
            raise RuntimeError("out of shared memory")
        return right(*tensors, ping_pong=ping_pong, **others)

    install(monkeypatch, raising)
    assert trace() == 3
    assert "not run: triton-ws-pp-fp16, N_CTX=32: out of shared memory" in capsys.readouterr().err
    assert trace("--provider", "triton-ws-pp-fp16") == 4


def test_without_triton(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "flash_attention.gluon", None)
    assert trace() == 4
    assert "flash_attention.gluon cannot be used" in capsys.readouterr().err


def test_another_release_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", "3.5.1")
    with pytest.raises(SkippedError, match=r"triton 3\.5\.1 is installed"):
        providers.gluon()


@pytest.mark.parametrize(("cached", "tune"), [(False, True), (True, False), (False, False)])
def test_which_configuration_it_is(
    cached: bool, tune: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ncu (`tune` False) every trial of a tuner would be profiled."""
    asked = install(monkeypatch, right, cached=cached)
    x = torch.randn(1, 32, 1, 64).half()
    out = torch.empty_like(x)
    bound = providers.bind("triton-ws-pp-fp16", (x, x, x), out, False, tune=tune)
    expected = {
        (False, True): (["best True"], "autotuned"),
        (True, False): (["best True, of the cache"], "autotuned, from the cache"),
        (False, False): (["best True, of the cache", "configs True 64"], "not tuned"),
    }
    assert (asked, bound.tuned) == expected[cached, tune]
    assert bound.parameters == {
        "BLOCK_M": 128, "FENCE": "pmevent", "num_warps": 4, "num_stages": 0,
    }  # fmt: skip
    assert bound.note == ""
    basic = providers.bind("triton-ws-fp16", (x, x, x), out, False)
    assert "1 configurations did not run" in basic.note
    assert "out of resources" in basic.note


def test_the_tuner_measures_nothing_under_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one, but for the GPU: an empty cache is a reason, and nothing is launched."""
    pytest.importorskip("triton")
    from flash_attention.gluon import best_config
    from flash_attention.triton_kit import calls, tuning
    from flash_helpers.base.dtypes import DType

    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Fake GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(tuning, "measure_on_gpu", lambda *_: pytest.fail("it measured"))
    problem = calls.AttentionCall(AttentionProblem.self_attention(DType.FP16, 1, 32, 1, 64), 0.125)
    x = torch.randn(1, 32, 1, 64).half()
    monkeypatch.setattr(calls, "check_call", lambda *_: (problem, x))
    with pytest.raises(NotTunedError, match="nothing was measured yet for gluon-ws-pp"):
        best_config(x, x, x, ping_pong=True, measure_now=False)
