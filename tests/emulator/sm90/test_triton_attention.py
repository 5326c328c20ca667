"""The plain Triton attention kernel in the emulator, as code for sm_80 and for sm_90a."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from flash_attention.triton.config import HEAD_DIMS, TritonForwardConfig, configs
from flash_attention.triton.op import TritonAttention
from flash_attention.triton_kit.calls import AttentionCall
from flash_attention.triton_kit.emulated import compiled, launch
from flash_attention.triton_kit.versions import minor_of, require_triton
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare
from flash_helpers.emulator import LaunchOptions, compare_schedules
from flash_helpers.kernels.problem import AttentionProblem

from ..conformance.forms import forms_of
from .conformance.suite import forms_under_test

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton compiles the kernels")

OP = TritonAttention()
SMALL = TritonForwardConfig(64, 32, 4, 3)
# (query length, key length, batch, heads, KV heads)
SIZES = ((1, 1, 1, 1, 1), (63, 113, 1, 1, 1), (203, 130, 2, 2, 1), (127, 300, 1, 3, 3))


def _dtype(bf16: bool) -> DType:
    return DType.BF16 if bf16 else DType.FP16


def _problem(
    sizes: tuple[int, ...], d_head: int, bf16: bool, causal: bool, seed: int
) -> tuple[Any, list[Any], Any]:
    """Sizes, tensors (the output is NaN) and the reference."""
    seqlen_q, seqlen_k, batch, heads, kv_heads = sizes
    dtype = _dtype(bf16).to_torch_dtype()
    random = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn((batch, length, n, d_head), generator=random).to(dtype)
        for length, n in ((seqlen_q, heads), (seqlen_k, kv_heads), (seqlen_k, kv_heads))
    )
    sizes = (batch, seqlen_q, seqlen_k, heads, kv_heads, d_head)
    problem = AttentionCall(AttentionProblem(_dtype(bf16), *sizes, causal=causal), d_head**-0.5)
    expected, _ = attention_reference(q, k, v, causal=causal, fp64=True)
    return problem, [q, k, v, torch.full_like(q, torch.nan)], expected


def _check(config: TritonForwardConfig, d_head: int, bf16: bool, causal: bool, seed: int) -> None:
    kernel = compiled(OP, config, AttentionCall.of_code(d_head, causal, _dtype(bf16)))
    assert set(forms_of(kernel.ptx)) <= forms_under_test()

    def run(options: LaunchOptions, sizes: tuple[int, ...]) -> list[Any]:
        problem, tensors, expected = _problem(sizes, d_head, bf16, causal, seed)
        launch(OP, kernel, config, problem, tensors, options=options)
        comparison = compare(tensors[3], expected)
        assert comparison.passed, (sizes, comparison.describe())
        return [tensors[3].float().numpy()]

    for sizes in SIZES:
        compare_schedules(partial(run, sizes=sizes), seed)


def test_right_under_every_schedule(seed: int) -> None:
    _check(SMALL, 64, False, True, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d_head", "bf16", "causal"), [*itertools.product(HEAD_DIMS, (False, True), (False, True))]
)
def test_all_kernels(d_head: int, bf16: bool, causal: bool, seed: int) -> None:
    for config in configs(d_head):
        _check(config, d_head, bf16, causal, seed)


def test_hopper_code(seed: int) -> None:
    """Triton feeds wgmma with what cp.async has copied, without the fence between the two proxies
    in the thread that copied, which it does write behind plain stores. Since 3.7 those who multiply
    execute one, behind the barrier, and since 3.9 for plain stores too; PTX does not say whether
    that suffices. No source can change it: the detector reports it, and must report nothing else.
    """
    unfenced = ("cp.async.", "st.shared") if minor_of(require_triton()) >= (3, 9) else "cp.async."
    kernel = compiled(OP, SMALL, AttentionCall.of_code(64, True, DType.FP16), architecture=90)
    assert "wgmma.mma_async" in kernel.ptx and set(forms_of(kernel.ptx)) <= forms_under_test()
    options = LaunchOptions(races="report")
    for sizes in SIZES:
        problem, tensors, expected = _problem(sizes, 64, False, True, seed)
        report = launch(OP, kernel, SMALL, problem, tensors, options=options)
        assert compare(tensors[3], expected).passed
        for race in report.races:
            assert race.kind == "write not fenced for an asynchronous unit", race
            assert race.first is not None and race.first.instruction.startswith(unfenced), race


@pytest.mark.parametrize("kind", ["triton", "gluon"])
def test_forward_on_the_cpu(kind: str, seed: int) -> None:
    """Strided tensors, a scale of the caller's, and an output between other data."""
    from flash_attention.gluon import emulated as gluon
    from flash_attention.gluon.config import GluonForwardConfig
    from flash_attention.triton import emulated as plain

    random = torch.Generator().manual_seed(seed)
    q = torch.randn((2, 100, 4, 64), generator=random).half().transpose(1, 2).contiguous()
    q = q.transpose(1, 2)
    k, v = torch.randn((2, 150, 2, 2, 64), generator=random).half().unbind(2)
    whole = torch.full((2, 100, 8, 64), torch.nan, dtype=torch.float16)
    out = whole[:, :, ::2]
    if kind == "gluon":
        config = GluonForwardConfig(BLOCK_M=128, BLOCK_N=64, NUM_BUFFERS=2)
        result = gluon.forward(
            q, k, v, ping_pong=True, causal=True, softmax_scale=0.2, config=config, out=out
        )
    else:
        result = plain.forward(q, k, v, causal=True, softmax_scale=0.2, config=SMALL, out=out)
    assert result is out
    expected, _ = attention_reference(q, k, v, 0.2, causal=True, fp64=True)
    comparison = compare(out, expected)
    assert comparison.passed, comparison.describe()
    assert whole[:, :, 1::2].isnan().all()
