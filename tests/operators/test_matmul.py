"""Products of matrices in the emulator, races on, against fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.matrices import calls, kernels
from flash_attention.operators.matrices.config import DIRECT, MatmulConfig, configs
from flash_attention.operators.matrices.op import (
    DirectMatmul,
    TiledMatmul,
    matmul_call,
    parts_of_epilogue,
)
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.tuning import Tuned

from .matrices import ALLOWED, exact, off
from .planting import found, planted
from .test_calls import captured
from .values import DTYPES, ordinary, shifted, with_gaps

each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
SHAPES = ((113, 70, 203), (1, 1, 1), (64, 96, 128), (200, 8, 24))


def draw(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Of a larger tensor, so that what lies beyond its edges is NaN."""
    larger = torch.full([n + 16 for n in shape], float("nan"), dtype=dtype)
    view = larger[tuple(slice(n) for n in shape)]
    view.copy_(ordinary(shape, dtype, seed))
    return view


@each_dtype
@pytest.mark.parametrize("version", ["direct", "tiled", "pipelined"])
def test_products(version: str, dtype: torch.dtype, seed: int) -> None:
    for m, n, k in SHAPES if version == "pipelined" else SHAPES[:2]:
        a, b = draw((m, k), dtype, seed), draw((k, n), dtype, seed + 1)
        assert off(operators.matmul(a, b, version=version), a, b) <= ALLOWED["ieee"]


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_fp32_on_tensor_cores(precision: str, seed: int) -> None:
    a, b = draw((70, 100), torch.float32, seed), draw((100, 40), torch.float32, seed + 1)
    error = off(operators.matmul(a, b, precision=precision), a, b)
    assert error <= ALLOWED[precision]
    assert (error > ALLOWED["ieee"]) is (precision == "tf32")


@pytest.mark.parametrize("version", ["direct", "pipelined"])
def test_strides(version: str, seed: int) -> None:
    def given(*shape: int) -> torch.Tensor:
        return draw(shape, torch.float16, seed)

    pairs = [
        (given(72, 40).T, given(72, 30)),
        (given(40, 72), given(30, 72).T),
        (given(71, 40).T, given(33, 71).T),
        (with_gaps(given(40, 50)), given(30, 50).T),  # copied
        (shifted(ordinary((40, 64), torch.float16, seed)), given(64, 32)),
        (given(1, 64).expand(40, 64), given(1, 32).expand(64, 32)),
        (given(40, 9)[:, :1], given(9, 8)[:1]),
    ]
    for a, b in pairs:
        assert off(operators.matmul(a, b, version=version), a, b) <= ALLOWED["ieee"]


@pytest.mark.parametrize(
    ("activation", "dtype"),
    [
        ("none", torch.float32), ("relu", torch.float16), ("silu", torch.bfloat16),
        ("gelu_erf", torch.float16), ("gelu_tanh", torch.float32),
    ],
    ids=str,
)  # fmt: skip
def test_epilogues(activation: str, dtype: torch.dtype, seed: int) -> None:
    a, b = draw((70, 50), dtype, seed), draw((50, 90), dtype, seed + 1)
    bias, residual = draw((90,), dtype, seed + 2), draw((90, 70), dtype, seed + 3).T
    both: dict[str, Any] = {"bias": bias, "residual": residual}
    alone = [{name: x} for name, x in both.items()] if activation == "none" else []
    for given in (both, *alone):
        y = operators.matmul(a, b, activation=activation, **given)
        assert off(y, a, b, activation=activation, **given) <= 2 * ALLOWED["ieee"]


def test_the_output_may_be_given(seed: int) -> None:
    a, b = draw((70, 50), torch.float16, seed), draw((50, 90), torch.float16, seed + 1)
    residual = ordinary((70, 90), torch.float16, seed + 2)
    wanted = operators.matmul(a, b, residual=residual)
    for out in (torch.empty_like(residual), with_gaps(residual), residual):
        assert operators.matmul(a, b, residual=residual, out=out) is out
        assert torch.equal(out, wanted)


def test_empty_matrices() -> None:
    assert operators.matmul(torch.zeros(0, 3), torch.zeros(3, 4)).shape == (0, 4)
    assert operators.matmul(torch.zeros(2, 3), torch.zeros(3, 0)).shape == (2, 0)
    bias = torch.arange(4.0)
    y = operators.matmul(torch.zeros(2, 0), torch.zeros(0, 4), bias=bias)
    assert torch.equal(y, bias.expand(2, 4))


def test_numbers_that_are_none_stay_in_their_rows_and_columns(seed: int) -> None:
    a, b = draw((70, 50), torch.float16, seed), draw((50, 90), torch.float16, seed + 1)
    a[3, 7], a[60, 2], b[9, 80] = float("nan"), float("inf"), -float("inf")
    assert off(operators.matmul(a, b), a, b) <= ALLOWED["ieee"]
    large = torch.full((16, 16), 6e4, dtype=torch.float16)
    assert torch.equal(operators.matmul(large, large), torch.full_like(large, float("inf")))


@pytest.mark.parametrize("version", ["tiled", "pipelined"])
def test_gradients(version: str, seed: int) -> None:
    shapes = ((20, 30), (30, 24), (24,), (20, 24))
    given = [ordinary(s, torch.float32, seed + i).requires_grad_() for i, s in enumerate(shapes)]
    wide = [x.detach().double().requires_grad_() for x in given]
    grad = ordinary((20, 24), torch.float32, seed + 9)
    for activation, inputs in (("none", 2), ("gelu_tanh", 4)):
        names: dict[str, Any] = dict(zip(("bias", "residual"), given[2:inputs], strict=False))
        y = operators.matmul(*given[:2], activation=activation, version=version, **names)
        z = exact(wide[0], wide[1], wide[2] if names else None, activation)
        z = z + wide[3] if names else z
        got = torch.autograd.grad(y, given[:inputs], grad)
        wanted = torch.autograd.grad(z, wide[:inputs], grad.double())
        for mine, its in zip(got, wanted, strict=True):
            assert torch.allclose(mine.double(), its, rtol=1e-5, atol=1e-5)


def test_every_configuration(seed: int) -> None:
    a, b = draw((150, 72), torch.bfloat16, seed), draw((72, 280), torch.bfloat16, seed + 1)
    for config in configs(150, 280, "half", 80):
        assert off(operators.matmul(a, b, config=config), a, b) <= ALLOWED["ieee"]


def test_a_tuned_product_asks_the_tuner_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("P", (), {"major": 9}))
    asked, ran = [], []

    def best_for(op: TiledMatmul, call: Any, tensors: Any, **_: Any) -> Tuned[MatmulConfig]:
        asked.append(call)
        return Tuned(op.space(call, 90)[3], 1.0)

    monkeypatch.setattr(calls, "best_for", best_for)
    monkeypatch.setattr(calls, "run", lambda op, call, tensors, config: ran.append(config))
    for check in ("check_tensor", "check_like"):
        monkeypatch.setattr(calls, check, lambda *_: None)
    a = torch.empty(77, 77, dtype=torch.float16, device="meta")
    for x in (a, a, a[:60]):
        operators.matmul(x, a, version="tuned")
    assert [call.m for call in asked] == [77, 60] and len(ran) == 3
    assert set(ran) == {TiledMatmul(90).space(call, 90)[3] for call in asked}


def test_torch_compile_sees_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = type("Properties", (), {"multi_processor_count": 132, "major": 9})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    targets = captured(lambda x, y: operators.matmul(x, y, activation="silu"), (40, 30), (30, 20))
    assert targets.count("triton_kernel_wrapper_functional") == 1


X = torch.zeros(4, 8)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"a": None}, TypeError, "a is None: expected a torch.Tensor"),
    ({"a": X[0]}, ValueError, "a has 1 dimensions: expected a matrix"),
    ({"b": X}, ValueError, r"b has shape \(4, 8\): expected 8 rows, as many as a has columns"),
    ({"b": X.T.half()}, ValueError, "b has dtype torch.float16, but a has torch.float32"),
    ({"bias": X[0]}, ValueError, r"bias has shape \(8,\): expected \(4,\), a number for every"),
    ({"residual": X}, ValueError, r"residual has shape \(4, 8\): expected \(4, 4\), that of"),
    ({"activation": "tanh"}, ValueError, "activation is 'tanh': allowed are none, relu, gelu_ta"),
    ({"precision": "tf64"}, ValueError, "precision is 'tf64': allowed are ieee, tf32, tf32x3"),
    ({"version": "v9"}, ValueError, "version is 'v9': allowed are direct, tiled, pipelined"),
    ({"version": "direct", "activation": "relu"}, ValueError, "'direct': it takes no bias, act"),
    ({"version": "tuned"}, ValueError, "version is 'tuned': only a GPU can be tuned for"),
    ({"out": X}, ValueError, r"out has shape \(4, 8\): expected \(4, 4\)"),
    ({"a": X[:, :4], "b": X[:, :4], "out": X[:, :4]}, ValueError, "a: it must be one of its own"),
    ({"config": MatmulConfig(BLOCK_K=24)}, ValueError, "BLOCK_K 24: allowed are 16, 32, 64"),
    ({"config": MatmulConfig(128, 256, 64, 8, 8, 4)}, ValueError, "bytes of shared memory: at m"),
    ({"config": DIRECT.as_dict()}, TypeError, "config is a dict: expected a MatmulConfig"),
]


@pytest.mark.parametrize(("change", "kind", "words"), BAD, ids=[words[:25] for *_, words in BAD])
def test_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        operators.matmul(**{"a": X, "b": X.T, **change})


def test_a_cpu_cannot_be_tuned_for() -> None:
    with pytest.raises(ValueError, match="only a GPU can be tuned for"):
        operators.matmul_best_config(X, X.T)


PLANTED = [
    ("b_at = b + (from_step[:, None] * b_stride + b_at[None, :])",
     "b_at = b + (from_step[:, None] + b_at[None, :] * b_stride)"),  # a swapped stride
    ("mask=(step < k - first)[None, :], other=0.0", "mask=(step < k)[None, :], other=0.0"),
    ("range(0, k, BLOCK_K)", "range(0, k - BLOCK_K + 1, BLOCK_K)"),  # the tail is left out
    ("a_step = BLOCK_K\n", "a_step = BLOCK_K - 1\n"),
    ("row % m, column % n", "row, column % n"),
    ("acc = tl.dot(x, y, acc,", "acc = tl.dot(x, y, activate(acc, ACTIVATION),"),
    ("acc = tl.dot(x, y, acc,", "acc = tl.dot(x, y,"),
    ("mask=column < columns, other=0.0).to(tl.float32)[None, :]\n        acc = act",
     "mask=column < columns, other=0.0).to(tl.float32)[None, :] * 2\n        acc = act"),
    ("first + rest % height, rest // height", "first + rest % GROUP_M, rest // GROUP_M"),
    ("row[:, None] * residual_stride", "row[:, None] * out_stride"),
    ("mask = inside & (column < columns)[None, :]", "mask = inside"),
]  # fmt: skip
PLANTED_IN_PARTS = ("out + HALF, inside", "out, inside")
SMALL, IN_PARTS = MatmulConfig(32, 32, 32, 2, 2, 2), MatmulConfig(32, 128, 32, 2, 1, 2)


@pytest.mark.parametrize(
    ("old", "new", "config"),
    [*((*bug, SMALL) for bug in PLANTED), (*PLANTED_IN_PARTS, IN_PARTS)],
)
def test_planted_bugs_are_found(old: str, new: str, config: MatmulConfig, seed: int) -> None:
    a, b = draw((70, 50), torch.float16, seed), draw((50, 140), torch.float16, seed + 1)
    bias, residual = draw((140,), torch.float16, seed), draw((70, 140), torch.float16, seed + 2)
    assert [parts_of_epilogue(c) for c in (SMALL, IN_PARTS)] == [1, 2]
    whole: dict[str, Any] = {"bias": bias, "activation": "relu", "residual": residual}

    def right(op: TiledMatmul) -> bool:
        out = torch.full((70, 140), float("nan"), dtype=torch.float16)
        call = matmul_call(a, b, bias, residual, out, "relu", "ieee")
        emulated.run(op, config, call, (a, b, bias, residual, out))
        return off(out, a, b, **whole) <= 8

    check_planted(right, TiledMatmul(), old, new)


PLANTED_IN_DIRECT = [
    ("mask=row < m, other=0.0", "mask=row >= 0, other=0.0"),
    ("b_at += b_row", "b_at += b_column"),
    ("acc += x[:, None]", "acc = x[:, None]"),
    ("range(k)", "range(k - 1)"),
]


@pytest.mark.parametrize(("old", "new"), PLANTED_IN_DIRECT)
def test_bugs_planted_in_the_direct_one_are_found(old: str, new: str, seed: int) -> None:
    a, b = ordinary((70, 50), torch.float16, seed), draw((50, 90), torch.float16, seed + 1)

    def right(op: TiledMatmul) -> bool:
        out = torch.full((70, 90), float("nan"), dtype=torch.float16)
        call = matmul_call(a, b, None, None, out, "none", "ieee")
        emulated.run(op, DIRECT, call, (a, b, out))
        return off(out, a, b) <= 8

    check_planted(right, DirectMatmul(), old, new)


def check_planted(right: Callable[[Any], bool], op: TiledMatmul, old: str, new: str) -> None:
    assert right(op)
    assert found(lambda: right(planted(op, kernels, old, new)))
