"""Convolutions in the emulator, races on, against fp64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.convolution import kernels
from flash_attention.operators.convolution.calls import unfolded
from flash_attention.operators.convolution.op import ConvCall, DirectConv, ImplicitConv, Unfold
from flash_attention.operators.matrices.config import MatmulConfig
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op
from flash_helpers.emulator import Counts, LaunchOptions

from .images import CASES, off
from .matrices import ALLOWED
from .planting import found, planted
from .test_calls import captured
from .test_matmul import draw
from .values import ordinary

ALGORITHMS = ("direct", "im2col", "implicit")
SAME = ConvCall(
    32, 64, 64, (56, 56), (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), 1, "float16"
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_convolutions(algorithm: str, case: str, seed: int) -> None:
    x_shape, w_shape, how = CASES[case]
    dtype = torch.bfloat16 if case == "strided" else torch.float16
    x, weight = draw(x_shape, dtype, seed), draw(w_shape, dtype, seed + 1)
    more: dict[str, Any] = {}
    if algorithm != "direct":
        more = {"bias": ordinary(w_shape[:1], dtype, seed + 2), "activation": "silu"}
    y = operators.conv2d(x, weight, algorithm=algorithm, **how, **more)
    assert off(y, x, weight, **how, **more) <= 2 * ALLOWED["ieee"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("last", [True, False])
def test_fp32_and_memory_formats(algorithm: str, last: bool, seed: int) -> None:
    x_shape, w_shape, how = CASES["same"]
    x, weight = (ordinary(s, torch.float32, seed + i) for i, s in enumerate((x_shape, w_shape)))
    if last:
        x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    y = operators.conv2d(x, weight, algorithm=algorithm, **how)
    assert off(y, x, weight, **how) <= ALLOWED["ieee"]
    assert y.is_contiguous(memory_format=torch.channels_last) is (algorithm != "direct")
    if algorithm == "implicit" and last:
        fast = operators.conv2d(x, weight, precision="tf32", **how)
        assert ALLOWED["ieee"] < off(fast, x, weight, **how) <= ALLOWED["tf32"]


def test_the_matrix_is_that_of_unfold(seed: int) -> None:
    x = ordinary((2, 6, 9, 8), torch.float16, seed).contiguous(memory_format=torch.channels_last)
    how = {"dilation": (2, 1), "padding": (1, 2), "stride": (1, 2)}
    expected = F.unfold(x.float(), (3, 2), **how).half()  # (images, channels * taps, pixels)
    call = ConvCall(
        2, 3, 1, (9, 8), (7, 6), (3, 2), how["stride"], how["padding"], how["dilation"], 2,
        "float16",
    )  # fmt: skip
    expected = expected.view(2, 2, 3, 6, 42).permute(0, 4, 1, 3, 2).reshape(84, 2, 18)
    assert torch.equal(unfolded(call, x), expected)


def test_no_images_and_kernels_as_large_as_the_image(seed: int) -> None:
    weight = ordinary((4, 3, 5, 6), torch.float16, seed)
    assert operators.conv2d(torch.zeros(0, 3, 9, 9).half(), weight).shape == (0, 4, 5, 4)
    x = ordinary((1, 3, 5, 6), torch.float16, seed)
    assert off(operators.conv2d(x, weight), x, weight) <= ALLOWED["ieee"]


def test_torch_compile_sees_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = type("Properties", (), {"multi_processor_count": 132, "major": 9})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    targets = captured(lambda x, w: operators.conv2d(x, w), (1, 1, 8, 8), (4, 1, 3, 3))
    assert targets.count("triton_kernel_wrapper_functional") == 1


X, W = torch.zeros(1, 6, 5, 5), torch.zeros(4, 3, 3, 3)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": None}, TypeError, "x is None: expected a torch.Tensor"),
    ({"x": X[0]}, ValueError, "x has 3 dimensions: expected 4"),
    ({"weight": W.half()}, ValueError, "weight has dtype torch.float16, but x has torch.float32"),
    ({"groups": 1}, ValueError, r"weight has shape \(4, 3, 3, 3\): for 6 channels of x in 1 group"),
    ({"groups": 3}, ValueError, "groups is 3: allowed are the divisors of 4"),
    ({"groups": 2.0}, TypeError, "groups is a float: expected an integer"),
    ({"stride": 0}, ValueError, "stride is 0: at least 1"),
    ({"padding": (1, -1)}, ValueError, r"padding is \(1, -1\): at least 0"),
    ({"dilation": (1, 2, 3)}, TypeError, "dilation is a tuple: expected an integer or a pair"),
    ({"dilation": 3}, ValueError, "weight reaches over 7 pixels: x has 5, with padding 5"),
    ({"bias": X[0, 0, 0]}, ValueError, r"bias has shape \(5,\): expected \(4,\), a number for ev"),
    ({"activation": "tanh"}, ValueError, "activation is 'tanh': allowed are none, relu"),
    ({"algorithm": "winograd"}, ValueError, "algorithm is 'winograd': allowed are implicit, im2"),
    ({"algorithm": "direct", "activation": "relu"}, ValueError, "'direct': it takes no bias or"),
]


@pytest.mark.parametrize(("change", "kind", "words"), BAD, ids=[words[:25] for *_, words in BAD])
def test_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        operators.conv2d(**{"x": X, "weight": W, "groups": 2, **change})


PLANTED = [
    ("implicit", "(y >= 0) & (y < height) & (z >= 0) & (z < width))[:, None]",
     "(y >= 0) & (y < height) & (z < width))[:, None]"),
    ("implicit", "c < channels - first", "c < channels"),
    ("implicit", "* (channels * GROUPS) + group * channels", "* (channels * GROUPS)"),
    ("implicit", "(down * width + right)", "(down * width - right)"),
    ("implicit", "bias += group * filters", "bias += group"),
    ("implicit", "w_at + (tap * channels + first)", "w_at + (tap + first)"),
    ("implicit", "step % blocks * BLOCK_K", "step % blocks"),
    ("implicit", "rest // out_width * STRIDE_H - PAD_H", "rest // out_width * STRIDE_W - PAD_H"),
    ("implicit", "(row[:, None] * (filters * GROUPS)", "(row[:, None] * filters"),
    ("unfold", "mask=inside[:, None] & (c", "mask=there[:, None] & (c"),
    ("unfold", "* GROUPS + group) * (KH * KW) + tap", "* GROUPS + group) * (KH * KW) + tap * 0"),
    ("direct", "& (z >= 0)", ""),
    ("direct", "tap // KW * DIL_H", "tap % KW * DIL_H"),
    ("direct", "filter // filters * channels", "filter // filters"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), PLANTED)
def test_planted_bugs_are_found(name: str, old: str, new: str, seed: int) -> None:
    how: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (2, 1), "groups": 2}
    x = ordinary((2, 72, 9, 7), torch.float16, seed)
    weight, bias = ordinary((20, 36, 3, 2), torch.float16, seed), draw((20,), torch.float16, seed)
    call = ConvCall(
        2, 36, 10, (9, 7), (4, 10), (3, 2), (2, 1), (1, 2), (2, 1), 2, "float16", name == "implicit"
    )  # fmt: skip
    op = {"implicit": ImplicitConv(), "unfold": Unfold(), "direct": DirectConv()}[name]
    last = torch.channels_last if name != "direct" else torch.contiguous_format
    given = [t.contiguous(memory_format=last) for t in (x, weight)]
    out = torch.empty((2, 20, 4, 10), dtype=torch.float16, memory_format=last)
    tensors: tuple[torch.Tensor, ...] = (*given, bias, out)
    if name == "direct":
        call = replace(call, strides=(*x.stride(), *out.stride()[:3]))
        tensors = (*given, out)
    if name == "unfold":
        out = torch.empty((80, 2, 6 * 36), dtype=torch.float16)
        tensors = (given[0], out)
        columns = F.unfold(x.float(), (3, 2), (2, 1), (1, 2), (2, 1)).half()
        columns = columns.view(2, 2, 36, 6, 40).permute(0, 4, 1, 3, 2).reshape(80, 2, 216)

    def right(op: Any) -> bool:
        out.fill_(float("nan"))
        emulated.run(op, op.default(call), call, tensors)
        if name == "unfold":
            return torch.equal(out, columns)
        return off(out, x, weight, bias if call.bias else None, **how) <= 8

    assert right(op)
    assert found(lambda: right(planted(op, kernels, old, new)))


def counted(call: ConvCall, tensors: tuple[torch.Tensor, ...]) -> Counts:
    op = ImplicitConv()
    config = op.default(call)
    kernel = emulated.compiled(op, config, call)
    options = LaunchOptions(count=True)
    report = emulated.launch(op, kernel, config, call, tensors, options=options)
    assert report.counts is not None
    return report.counts


def test_bias_and_activation_cost_no_pass_over_memory(seed: int) -> None:
    """Exactly the loads of the bias more, counted; so a quarter of the bytes less, at least, than
    with kernels of their own."""
    x = ordinary((1, 64, 8, 8), torch.float16, seed).contiguous(memory_format=torch.channels_last)
    weight = ordinary((64, 64, 3, 3), torch.float16, seed).contiguous(
        memory_format=torch.channels_last
    )
    out, bias = torch.empty_like(x), ordinary((64,), torch.float16, seed)
    call = replace(SAME, images=1, size=(8, 8), out_size=(8, 8))
    plain = counted(call, (x, weight, x, out)).by(
        lambda i: i.opcode.split(".")[0:2] == ["st", "global"]
    )
    fused_call = replace(call, bias=True, activation="relu")
    fused = counted(fused_call, (x, weight, bias, out)).by(
        lambda i: i.opcode.startswith("st.global")
    )
    assert fused[True].sectors == plain[True].sectors == out.nbytes // 32
    extra = fused[False].sectors - plain[False].sectors
    assert 0 < extra <= 4 * 8 * bias.nbytes // 32 * ImplicitConv().default(call).tiles(64, 64)
    op, y = ImplicitConv(), 2 * SAME.pixels * SAME.filters
    together = op.work(replace(SAME, bias=True, activation="relu")).n_bytes
    apart = op.work(SAME).n_bytes + 2 * y + 2 * y
    assert together <= 0.75 * apart


@pytest.mark.parametrize("architecture", [80, 90])
def test_loads_are_in_flight_where_the_channels_allow_it(architecture: int) -> None:
    op = ImplicitConv(architecture)
    for channels, wide in ((64, True), (40, True), (8, True), (3, False)):
        call = replace(SAME, channels=channels, bias=True, activation="relu")
        compiled = compile_op(op, op.default(call), call, architecture=architecture)
        assert ("cp.async.cg.shared.global" in compiled.ptx) is wide
        assert compiled.spill_bytes == 0
        assert ("wgmma" if architecture == 90 else "mma.sync") in compiled.ptx


@pytest.mark.parametrize(("taps", "filters"), [((1, 1), 256), ((3, 3), 128)])
def test_many_filters_do_not_spill(taps: tuple[int, int], filters: int) -> None:
    op = ImplicitConv(90)
    call = replace(SAME, taps=taps, filters=filters, bias=True, activation="relu")
    config = op.default(call)
    assert config.num_stages == (1 if taps == (1, 1) else 3)
    assert len(set(op.space(call, 90))) == len(op.space(call, 90))
    compiled = compile_op(op, config, call, architecture=90)
    assert compiled.spill_bytes == 0 and "wgmma" in compiled.ptx


def test_the_default_computes_no_more_filters_than_there_are() -> None:
    for filters in (8, 64, 65, 300):
        config = ImplicitConv().default(replace(SAME, filters=filters))
        assert config.BLOCK_N == 64 or 2 * filters > config.BLOCK_N


def test_offsets_beyond_32_bits() -> None:
    wide = replace(SAME, images=2**12)
    assert ImplicitConv().code(MatmulConfig(), wide)[1].wide is wide.wide is False
    wide = replace(SAME, images=2**14)
    assert ImplicitConv().code(MatmulConfig(), wide)[1].wide is wide.wide is True
