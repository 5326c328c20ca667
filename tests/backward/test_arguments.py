"""What `backward` refuses, and in which words."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import autograd, dispatch
from flash_helpers.kernel_configs import DType, get_hopper_kernel_configs
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import violations
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm80_bwd.sets import get_ampere_backward_kernel_configs
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.family import FEW_BLOCKS, in_order_keys
from tests.backward.problems import CONFIGS, SMALL, SMALLS

FORWARD = get_hopper_kernel_configs()[0]


def arguments() -> dict[str, Any]:
    q, o, d_o = (torch.randn(1, 8, 2, 64).half() for _ in range(3))
    k, v = (torch.randn(1, 16, 1, 64).half() for _ in range(2))
    given = {"kernel_cfg": SMALL, "d_o": d_o, "q": q, "k": k, "v": v, "o": o}
    return {**given, "lse": torch.zeros(1, 2, 8)}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "d_o of another shape": ({"d_o": torch.zeros(1, 9, 2, 64).half()}, "d_o has shape"),
    "d_o of another dtype": ({"d_o": torch.zeros(1, 8, 2, 64)}, "d_o has dtype torch.float32"),
    "d_o with stride 0 in its last dimension": (
        {"d_o": torch.zeros(1, 8, 2, 1).half().expand(1, 8, 2, 64)}, "d_o has stride 0",
    ),
    "an lse of another shape": ({"lse": torch.zeros(1, 8, 2)}, "lse is a torch.float32 tensor of"),
    "an lse gradient in fp16": ({"d_lse": torch.zeros(1, 2, 8).half()}, "d_lse is a torch.float16"),
    "o of another shape": ({"o": torch.zeros(1, 8, 1, 64).half()}, "o has shape"),
    "a forward configuration": ({"kernel_cfg": FORWARD}, "the kernels of a forward pass"),
    "a configuration that cannot be built": (
        {"kernel_cfg": replace(get_ampere_backward_kernel_configs()[0], keys_rows=96)},
        "keys_rows = 96 is not supported",
    ),
    "a gradient that there is not": ({"wanted": ("q", "o")}, r"wanted names \['o'\]"),
    "a scale of 0": ({"softmax_scale": 0.0}, "softmax_scale is 0.0"),
    # Before memory is made, whose size depends on them.
    "k without heads": (
        {"k": torch.zeros(1, 16, 0, 64).half()}, r"k has shape \(1, 16, 0, 64\): empty tensors",
    ),
    "k without a batch": ({"k": torch.zeros(16, 1, 64).half()}, "k has shape .* expected 4"),
    "a mask that is an array": ({"causal": torch.tensor([1, 0])}, "causal is a .* True or False"),
    "an input that requires a gradient": (
        {"q": torch.zeros(1, 8, 2, 64).half().requires_grad_()}, "q requires a gradient",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernels", SMALLS[:4], ids=lambda config: config.FAMILY)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, kernels: BackwardKernelConfig) -> None:
    changes, words = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=words):
        flash_attention.backward(**{**arguments(), "kernel_cfg": kernels, **changes})


def test_forward_refuses_the_kernels_of_a_backward_pass() -> None:
    given = arguments()
    with pytest.raises(ValueError, match="the kernels of a backward pass"):
        flash_attention.forward(SMALL, given["q"], given["k"], given["v"])


@pytest.mark.parametrize(("capability", "rows"), [((8, 0), 128), ((8, 6), 64), ((12, 0), 64)])
def test_the_kernels_chosen_fit_the_shared_memory(
    capability: tuple[int, int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thread block, which 8.6 and 8.9 have little of: of a build with larger tiles, too."""
    large = AmpereBackwardKernelConfig(DType.FP16, 128, 128, 64, 8, 128, 64, 8)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(dispatch, "available_kernels", lambda: [*CONFIGS, large])
    problem = AttentionProblem(DType.FP16, 1, 64, 64, 1, 1, 128, gradients=True)
    config = dispatch.choose(problem, torch.device("cuda", 0))
    assert isinstance(config, AmpereBackwardKernelConfig) and config.keys_rows == rows


@pytest.mark.parametrize(
    ("capability", "blocks"),
    [((8, 0), (16, 128)), ((8, 6), (16, 64)), ((8, 7), (16, 128)), ((8, 9), (16, 64)),
     ((10, 0), (32, 128)), ((12, 0), (16, 64))],
)  # fmt: skip
@pytest.mark.parametrize("deterministic", [False, True])
def test_wide_heads_have_the_largest_blocks_that_fit(
    capability: tuple[int, int], blocks: tuple[int, int], deterministic: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(dispatch, "available_kernels", lambda: CONFIGS)
    problem = AttentionProblem(
        DType.BF16, 1, 40, 70, 4, 2, 256, causal=True, gradients=True, deterministic=deterministic
    )
    config = dispatch.choose(problem, torch.device("cuda", 0))
    assert isinstance(config, AmpereBackwardKernelConfig)
    assert (config.d_head, config.blocks()) == (256, blocks) and not violations(config, capability)


@pytest.mark.parametrize("d_head", [192, 256])
def test_wide_heads_are_recorded_on_a_gpu_without_kernels_of_its_own(
    d_head: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the forward pass it is asked whether there are kernels for the gradients."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU without a tuning table")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(dispatch, "available_kernels", lambda: CONFIGS)
    q = torch.empty(1, 40, 4, d_head, dtype=torch.float16, device="meta", requires_grad=True)
    computed = torch.empty_like(q), torch.empty(1, 4, 40, device="meta")
    o, _ = autograd.attention(lambda *_: computed, q, q, q, None, True, False)
    assert o.grad_fn is not None


def test_the_hopper_family_has_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(dispatch, "available_kernels", lambda: CONFIGS)
    assert FEW_BLOCKS < 129 * 4  # blocks of keys of these problems, at least
    for d_head, deterministic, causal, more, sharing in itertools.product(
        (64, 96, 128, 192, 256), (False, True), (False, True), (-1, 0, 1), (1, 3, 4)
    ):
        most = in_order_keys(d_head, causal, sharing)
        keys = (int(most) if math.isfinite(most) else 1 << 20) + more
        problem = AttentionProblem(
            DType.FP16, 129, 64, keys, 4 * sharing, 4, d_head,
            causal=causal, gradients=True, deterministic=deterministic,
        )  # fmt: skip
        config = dispatch.choose(problem, torch.device("cuda", 0))
        assert config.d_head == d_head
        assert config.is_deterministic() or not deterministic
        if d_head > 128:
            by_pairs = d_head == 192 and keys >= (2048 if causal and deterministic else 1024)
            assert ("sm90_bwd_cluster" if by_pairs else "sm90_bwd") == config.FAMILY
            assert config.is_deterministic() == (deterministic or not by_pairs)
            continue
        assert isinstance(config, FusedBackwardKernelConfig)
        in_order = deterministic or keys <= most
        assert config.add_by is (AddBy.IN_ORDER if in_order else AddBy.COPIES)
        few = causal and keys <= 4096
        columns = {64: 128, 96: 64 if few and in_order else 80, 128: 64 if in_order else 80}
        assert config.keys_columns == columns[d_head]


@pytest.mark.parametrize("d_head", [64, 96, 128])
@pytest.mark.parametrize("deterministic", [False, True])
def test_few_thread_blocks_wait_for_each_other_only_if_they_must(
    d_head: int, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(dispatch, "available_kernels", lambda: CONFIGS)
    half = FEW_BLOCKS // 2
    for causal, (keys, heads, kv_heads) in itertools.product(
        (False, True),
        [(256, half, half), (257, half, half), (256, 64, 64), (256, 65, 65), (256, 60, 20),
         (256, 66, 33), (128, 100, 100), (128, 100, 1)],
    ):  # fmt: skip
        problem = AttentionProblem(
            DType.FP16, 1, 64, keys, heads, kv_heads, d_head,
            causal=causal, gradients=True, deterministic=deterministic,
        )  # fmt: skip
        config = dispatch.choose(problem, torch.device("cuda", 0))
        assert isinstance(config, FusedBackwardKernelConfig)
        at_once = causal and d_head > 64 and heads <= 64  # thread blocks with two each: 128
        in_order = deterministic or keys in (257, 128) or at_once
        assert config.add_by is (AddBy.IN_ORDER if in_order else AddBy.COPIES)
        wide = not causal and d_head == 128 and not in_order
        assert (config.keys_columns == 80) is wide


@pytest.mark.parametrize("keys", [512, 513])
@pytest.mark.parametrize("deterministic", [False, True])
def test_short_sequences_of_96_have_blocks_that_they_fill(
    keys: int, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(dispatch, "available_kernels", lambda: CONFIGS)
    for heads in (1, 200):  # in order, the latter
        problem = AttentionProblem(
            DType.FP16, 1, keys, keys, heads, heads, 96,
            gradients=True, deterministic=deterministic,
        )  # fmt: skip
        config = dispatch.choose(problem, torch.device("cuda", 0))
        assert isinstance(config, FusedBackwardKernelConfig)
        assert config.keys_columns == (64 if keys <= 512 else 80)


def test_a_table_does_not_decide_what_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = next(c for c in CONFIGS if not c.is_deterministic())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(dispatch, "available_kernels", lambda: CONFIGS)
    monkeypatch.setattr(dispatch, "tuned_config", lambda *_, **__: fast)
    for deterministic in (False, True):
        problem = AttentionProblem(
            fast.dtype, 1, 4096, 4096, 1, 1, fast.d_head,
            gradients=True, deterministic=deterministic,
        )  # fmt: skip
        config = dispatch.choose(problem, torch.device("cuda", 0))
        assert (config == fast) is not deterministic


def test_a_build_without_fused_kernels_serves_by_two_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the exception that said so keeps nobody's tensors alive: not even until the garbage
    collector comes."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    two_pass = [c for c in CONFIGS if c.FAMILY != "sm90_bwd_fused"]
    monkeypatch.setattr(dispatch, "available_kernels", lambda: two_pass)
    problem = AttentionProblem(DType.FP16, 1, 64, 64, 1, 1, 128, gradients=True)

    def caller() -> weakref.ref[torch.Tensor]:
        tensor = torch.zeros(1)
        assert dispatch.choose(problem, torch.device("cuda", 0)).FAMILY == "sm90_bwd"
        return weakref.ref(tensor)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_a_head_dimension_above_all_is_refused_as_without_gradients() -> None:
    q = torch.zeros(1, 8, 1, 264, dtype=torch.float16, requires_grad=True)
    with pytest.raises(ValueError, match="q has head dimension 264: at most 256 is supported"):
        flash_attention.flash_attn_func(q, q, q)
