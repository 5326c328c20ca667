"""The Hopper family's gradients of packed sequences and windows, which the emulator computes where
they are asked first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flash_attention
import flash_attention.emulated
from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.sets import get_fused_backward_kernel_configs
from flash_helpers.kernels.sm90_bwd_fused_serve.config import FusedServeBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused_serve.sets import get_fused_serve_backward_kernel_configs

from .packed import (
    NAMES,
    Packed,
    check_equal_lengths_with_a_window,
    hopper_gradients,
    varlen,
)
from .problems import FULL, NAN, ints
from .schedules import no_schedule_matters

CONFIGS = get_fused_serve_backward_kernel_configs()
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BackwardKernelConfig]]:
    """Which configurations ran."""
    launch = flash_attention.emulated.launch_backward
    ran: list[BackwardKernelConfig] = []

    def recorded(plan: Any, *arguments: Any) -> None:
        ran.append(plan.config)
        launch(plan, *arguments)

    monkeypatch.setattr(flash_attention.emulated, "launch_backward", recorded)
    with hopper_gradients():
        yield ran


@pytest.fixture
def hopper(launched: list[BackwardKernelConfig]) -> Iterator[None]:
    """Every kernel that ran was of the Hopper family."""
    yield
    assert launched
    assert all(isinstance(config, FusedServeBackwardKernelConfig) for config in launched)


def of(config: FusedServeBackwardKernelConfig, **given: Any) -> dict[str, Any]:
    return {"d": config.d_head, "dtype": config.dtype.to_torch_dtype(), **given}


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    "problem",
    [
        Packed([17, 0, 70, 1], [40, 5, 70, 130]),
        Packed([129, 64, 3], [129, 128, 0], FULL, d=128, dtype=BF16),
        Packed([70, 3], [140, 3], FULL, heads=4, kv_heads=2, with_d_lse=True),
        Packed([150], [140], ServeRule(window=(9, 33)), d=72, d_v=24, heads=1),
        Packed([65, 128], [190, 5], ServeRule(window=(20, -1)), heads=3, kv_heads=3, d=128),
        Packed([60], [80], ServeRule(causal=True, scale=-0.1), heads=1),
    ],
    ids=["lengths", "full", "groups", "filled up", "window", "negative scale"],
)
def test_gradients_of_packed_sequences(problem: Packed) -> None:
    problem.check()


@pytest.mark.slow
@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(
    "rule", [FULL, ServeRule(causal=True), ServeRule(causal=True, window=(30, 0))], ids=str
)
def test_every_kernel(config: FusedServeBackwardKernelConfig, rule: ServeRule) -> None:
    Packed([130, 1, 90], [260, 33, 129], rule, heads=2, **of(config)).check()


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("d", [64, 128])
def test_edges_of_windows(d: int) -> None:
    """Keys 127 and 128, of two thread blocks, are seen by queries of two blocks."""
    Packed([130], [130], ServeRule(window=(1, 1)), heads=1, d=d).check()


@pytest.mark.usefixtures("hopper")
def test_many_empty_sequences() -> None:
    lengths = [0] * 34
    for i in (0, 17, 33):
        lengths[i] = 2
    Packed(lengths, [1] * 34, heads=1).check()


@pytest.mark.usefixtures("hopper")
def test_used_rows_alone_have_gradients() -> None:
    problem = Packed([20, 30], [25, 40])
    for name, a, b in (("q", 13, 23), ("d_o", 13, 23), ("k", 23, 28), ("v", 23, 28)):
        problem.tensors[name][a:b] = NAN  # between what is used
    problem.check(seqused_q=ints([10, 30]), seqused_k=ints([20, 33]))


@pytest.mark.usefixtures("hopper")
def test_the_last_row() -> None:
    """Of a tensor that ends with a sequence."""
    problem = Packed([20], [30], heads=1)
    for name, x in problem.tensors.items():
        problem.tensors[name] = x[:-2].clone()
    problem.check()


@pytest.mark.usefixtures("hopper")
def test_rows_that_lie_apart() -> None:
    """Heads between those of others, and an output's gradient that is one row."""
    problem = Packed([30, 9], [50, 20], heads=2, kv_heads=2)
    for name in "qkv":
        wide = torch.full((len(problem.tensors[name]), 5, 96), NAN, dtype=torch.float16)
        wide[:, ::2, 16:80][:, :2] = problem.tensors[name]
        problem.tensors[name] = wide[:, ::2, 16:80][:, :2]
    problem.tensors["d_o"] = torch.randn(1, 1, 64).half().expand(problem.tensors["q"].shape)
    problem.check()


@pytest.mark.parametrize(("batch", "length", "kv_heads"), [(2, 140, 2), (65, 128, 1)])
@pytest.mark.parametrize("d", [64, 128])
def test_equal_lengths_have_the_bits_of_the_other_fused_pass(
    d: int, batch: int, length: int, kv_heads: int, launched: list[BackwardKernelConfig]
) -> None:
    """The kernels add up in the same order, and so does the emulator, one thread block after the
    other. Heads that share keys, too, where blocks of keys are too many to share these out."""
    torch.manual_seed(0)
    q, d_o = (torch.randn(batch, length, 2, d, dtype=torch.float16) for _ in range(2))
    k, v = (torch.randn(batch, length, kv_heads, d, dtype=torch.float16) for _ in range(2))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    starts = ints([length * i for i in range(batch + 1)])
    o, lse, _ = varlen(*(x.flatten(0, 1) for x in leaves), starts, starts, return_attn_probs=True)
    found = torch.autograd.grad(o, leaves, d_o.flatten(0, 1))
    values = vars(launched[0])
    config = next(c for c in get_fused_backward_kernel_configs() if vars(c) == values)
    expected = flash_attention.backward(
        config, d_o, q, k, v, o.detach().view(d_o.shape),
        lse.detach().view(2, batch, length).movedim(0, 1).contiguous(),
    )  # fmt: skip
    for a, b in zip(found, expected, strict=True):
        assert b is not None and bitwise_equal(a, b)


@pytest.mark.usefixtures("hopper")
def test_gradients_of_equal_lengths_with_a_window() -> None:
    check_equal_lengths_with_a_window()


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", ["q", "k"])
def test_those_that_are_asked_for_alone(name: str) -> None:
    problem = Packed([20, 30], [25, 40])
    expected, _ = problem.call()
    leaves = {n: problem.tensors[n].clone() for n in "qkv"}
    leaves[name].requires_grad_()
    starts = problem.starts(problem.queries), problem.starts(problem.keys)
    varlen(*leaves.values(), *starts, causal=True).backward(problem.tensors["d_o"])
    found = leaves[name].grad
    assert found is not None and bitwise_equal(found, expected[f"d_{name}"])


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("d", [64, 128])
def test_every_schedule_gives_the_same_bits(
    d: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one block of keys each: with more, the order in which they add up decides."""
    problem = Packed([70, 0, 130], [100, 3, 60], heads=2, d=d)

    def call() -> list[torch.Tensor]:
        found, _ = problem.call()
        return [found[name] for name in NAMES]

    no_schedule_matters(call, seed, monkeypatch)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"rule": ServeRule(softcap=2.0, scale=0.2)}, {}),
        ({"with_sinks": True}, {}),
        ({}, {"deterministic": True}),
        ({}, {"num_splits": 1}),
    ],
    ids=["softcap", "sinks", "deterministic", "same bits in every batch"],
)
def test_what_the_other_family_computes(
    given: dict[str, Any], options: dict[str, Any], launched: list[BackwardKernelConfig]
) -> None:
    Packed([20], [25], heads=1, **given).check(**options)
    assert [config.FAMILY for config in launched] == ["sm80_bwd_serve"]
