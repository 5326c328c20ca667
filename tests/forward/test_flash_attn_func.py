"""flash_attn_func on CPU tensors: which kernel it chooses, what it copies, and how a family is
added. What it supports and refuses is tested row by row from docs/support.md (tests/docs)."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import attention, dispatch, interface
from flash_helpers.base.dtypes import DType
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernel_configs import (
    KernelConfig,
    get_kernel_configs,
    parse_kernel_name_into_config,
)
from flash_helpers.kernels.family import Capability
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import registered
from flash_helpers.kernels.sm80_fwd.family import FAMILY as SM80_FORWARD
from flash_helpers.kernels.sm80_fwd.family import Sm80Forward

CPU = torch.device("cpu")


def of(d_head: int, seqlen_q: int, seqlen_k: int, *, causal: bool = False) -> AttentionProblem:
    return AttentionProblem(DType.FP16, 1, seqlen_q, seqlen_k, 2, 1, d_head, causal=causal)


PROBLEM = of(128, 64, 64)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape).half()


@dataclass
class Recorder:
    """Stands where kernels are launched, and remembers the calls."""

    calls: list[tuple[KernelConfig, tuple[torch.Tensor, ...]]] = field(default_factory=list)

    def __call__(self, config: KernelConfig, *tensors: Any, key: object) -> None:
        assert key is attention.CHOSEN
        self.calls.append((config, tensors[:4]))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(attention, "launch_checked", recorder)
    return recorder


def test_the_signature_is_flash_attn_2_s() -> None:
    *parameters, sinks = inspect.signature(flash_attention.flash_attn_func).parameters.values()
    assert [(p.name, p.default) for p in parameters][3:] == [
        ("dropout_p", 0.0), ("softmax_scale", None), ("causal", False), ("window_size", (-1, -1)),
        ("softcap", 0.0), ("alibi_slopes", None), ("deterministic", False),
        ("return_attn_probs", False),
    ]  # fmt: skip
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    assert (sinks.name, sinks.default, sinks.kind) == ("s_aux", None, sinks.KEYWORD_ONLY)


def test_the_result_is_that_of_forward_with_the_chosen_kernel() -> None:
    q, k, v = draw(1, 100, 2, 128), draw(1, 130, 1, 128), draw(1, 130, 1, 128)
    config = dispatch.choose(of(128, 100, 130, causal=True), CPU)
    expected = flash_attention.forward(config, q, k, v, causal=True)
    o = flash_attention.flash_attn_func(q, k, v, causal=True)
    assert isinstance(o, torch.Tensor) and bitwise_equal(o, expected)


def test_the_tuning_table_chooses(launches: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = get_kernel_configs("tune")[3]
    asked: list[tuple[Any, Any]] = []

    def tuned_config(*lengths: Any, **options: Any) -> KernelConfig:
        asked.append((lengths, options))
        return chosen

    monkeypatch.setattr(dispatch, "tuned_config", tuned_config)
    q, k = draw(2, 70, 4, 128), draw(2, 30, 2, 128)
    flash_attention.flash_attn_func(q, k, k, causal=True)
    options = {"causal": True, "device": CPU, "family": "sm80", "on_first_use": False}
    assert asked == [((DType.FP16, 128, 70, 30), options)]
    assert [config for config, _ in launches.calls] == [chosen]


@pytest.mark.parametrize("causal", [False, True])
def test_where_no_table_knows_the_largest_built_kernel_serves(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tuned_config(*_: Any, **__: Any) -> None:
        raise LookupError

    monkeypatch.setattr(dispatch, "tuned_config", tuned_config)
    monkeypatch.setattr(dispatch, "available_kernels", lambda: get_kernel_configs("prog")[::-1])
    problem = of(128, 64, 64, causal=causal)
    assert (
        dispatch.choose_from(SM80_FORWARD, problem, CPU) in get_kernel_configs("prog")[-2:]
    )  # the general ones
    plain = [parse_kernel_name_into_config("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")]
    monkeypatch.setattr(dispatch, "available_kernels", lambda: plain)
    if not causal:
        assert dispatch.choose_from(SM80_FORWARD, problem, CPU) == plain[0]
        return
    with pytest.raises(flash_attention.KernelNotBuiltError, match=r"causal.* and 1 for FP16 and"):
        dispatch.choose_from(SM80_FORWARD, problem, CPU)


def test_a_family_is_added_in_one_place(
    launches: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves what it supports; what it has not built, and what it refuses, the next one does."""

    class Other(Sm80Forward):
        NAME, TITLE = "other", "other"

        def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
            return None if problem.d_head == 64 else "its head dimension is 64"

        def preference(self, capability: Capability | None) -> int:
            return 3

    own = dispatch.choose(PROBLEM, CPU)
    with registered(Other()):
        assert dispatch.choose(PROBLEM, CPU) == own  # it refuses
        problem = of(64, 64, 64)
        with pytest.raises(flash_attention.KernelNotBuiltError, match="of the other family for"):
            dispatch.choose(problem, CPU)
        config = get_kernel_configs("d64")[0]
        monkeypatch.setattr(
            dispatch, "tuned_config", lambda *_, **kw: {"other": config}[kw["family"]]
        )
        assert dispatch.choose(problem, CPU) == config
    with pytest.raises(ValueError, match="the Ampere family does not: its head dimensions are 64"):
        dispatch.choose(of(72, 64, 64), CPU)


def test_a_head_dimension_of_0_is_refused_by_name() -> None:
    empty = torch.zeros(1, 64, 2, 0, dtype=torch.float16)
    with pytest.raises(ValueError, match="q has head dimension 0: at least 1"):
        flash_attention.flash_attn_func(empty, empty, empty)


def test_only_what_cannot_be_read_is_copied(launches: Recorder) -> None:
    q, k, v = draw(2, 70, 2, 128), draw(2, 70, 2, 129)[..., :128], draw(2, 70, 2, 136)[..., :128]
    o = flash_attention.flash_attn_func(q, k, v)
    ((_, (q_read, k_read, v_read, o_written)),) = launches.calls
    assert q_read is q and v_read is v and o_written is o
    assert k_read is not k and k_read.is_contiguous() and bitwise_equal(k_read, k.contiguous())


def test_the_output_has_q_s_layout_where_it_can(launches: Recorder) -> None:
    head_major = draw(2, 2, 70, 128).transpose(1, 2)
    o = flash_attention.flash_attn_func(head_major, head_major, head_major)
    assert isinstance(o, torch.Tensor) and o.stride() == head_major.stride()
    strided = draw(2, 2, 128, 70).permute(0, 3, 1, 2)
    o = flash_attention.flash_attn_func(strided, strided, strided)
    assert isinstance(o, torch.Tensor) and o.stride(3) == 1 and o.shape == strided.shape


@pytest.mark.parametrize("shape", [(0, 64, 1, 128), (2, 0, 1, 128)])
def test_without_queries_nothing_is_launched(
    launches: Recorder, shape: tuple[int, int, int, int]
) -> None:
    q, k = draw(*shape), draw(shape[0], 64, 1, 128)
    o, lse, _ = flash_attention.flash_attn_func(q, k, k, return_attn_probs=True)
    assert o.shape == shape and lse is not None and lse.shape == (shape[0], 1, shape[1])
    assert launches.calls == []


def test_arguments_at_their_defaults_in_other_clothes(launches: Recorder) -> None:
    x = draw(1, 64, 1, 128)
    window: Any = [-1, -1]
    flash_attention.flash_attn_func(x, x, x, 0, None, False, window, 0, None, True)
    assert len(launches.calls) == 1


def test_a_remembered_call_launches_without_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the extension's cache, which needs a GPU (tests/gpu)."""
    seen: list[tuple[Any, ...]] = []

    def launch_again(*arguments: Any) -> bool:
        seen.append(arguments)
        return True

    monkeypatch.setattr(attention, "launch_again", launch_again)
    monkeypatch.setattr(dispatch, "choose", lambda problem: pytest.fail("a choice was made"))
    x = draw(1, 64, 1, 128)
    o, lse, _ = flash_attention.flash_attn_func(
        x, x, x, None or 0.0, 0.5, True, return_attn_probs=True
    )
    ((key, *rest),) = seen
    assert key is attention.CHOSEN
    assert [r is x for r in rest[:3]] == [True] * 3
    assert rest[3] is o and rest[4] is lse and rest[5:] == [0.5, True]


def test_the_cache_is_asked_with_the_choice_s_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a call of `forward` with some configuration and this one do not mix."""
    calls: list[tuple[object, ...]] = []

    class Cache:
        def again(self, key: object, *arguments: object) -> bool:
            calls.append((key, *arguments[-2:]))
            return False

    monkeypatch.setattr(interface, "launch_cache", Cache)
    x: Any = SimpleNamespace(is_cuda=True)
    assert not interface.launch_again(attention.CHOSEN, x, x, x, x, None, None, True)
    negated: Any = SimpleNamespace(is_cuda=True, is_neg=lambda: True)
    assert not interface.launch_again(attention.CHOSEN, x, negated, x, x, None, None, True)
    assert calls == [(attention.CHOSEN, True, torch.is_grad_enabled())]
    assert attention.CHOSEN not in get_kernel_configs("all")
