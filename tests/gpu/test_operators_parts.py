"""On a GPU: rows that several programs share, in clusters or not, alone and beside each other, and
shorter ones that one program computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.rows.alone_op import AloneConfig
from tests.operators.compare import excess
from tests.operators.values import ordinary

pytestmark = pytest.mark.gpu
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
# Parts of 8 to 64 KB, whole and not; few rows and many.
SHAPES = [(1, 41_008), (300, 65_536), (3, 131_072), (70, 262_144), (500, 49_160), (2, 1_000_000)]
# Clusters of 3 to 16 on Hopper, with parts of every size, whole and not, for few rows and many.
SHAPES += [(2, 12_296), (1030, 20_480), (40, 110_000), (5, 147_464)]
# Parts of 16,384 of rows that are enough for that, whole and not; parts of 8,192 of fp32.
SHAPES += [(130, 262_144), (129, 147_464), (129, 147_456), (258, 40_960)]
# By pairs of rows, of which the last one has none.
SHAPES += [(1025, 8192), (301, 9224), (515, 24_584), (257, 131_064)]
# Many rows of which each has a program on other GPUs than Hopper, in registers or in steps.
ALONE = [(1030, 12_288), (1100, 15_400), (1024, 16_384), (1024, 28_680), (1025, 32_768)]


@each_dtype
@pytest.mark.parametrize("shape", [*SHAPES, *ALONE], ids=str)
def test_norms(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
    x = (ordinary(shape, dtype, seed).cuda() + 3).to(dtype)
    w, b = (ordinary(shape[-1:], dtype, seed + i).cuda() for i in (1, 2))
    wide = x.double()
    layer = F.layer_norm(wide, shape[-1:], w.double(), b.double())
    rms = F.rms_norm(wide, shape[-1:], w.double(), 1e-6)
    for _ in range(3):
        got = operators.layer_norm(x, w, b)
        assert excess(got, layer, layer.abs().max()) <= 8
        assert torch.equal(got, operators.layer_norm(x, w, b))
        assert excess(operators.rms_norm(x, w), rms, rms.abs().max()) <= 8


@each_dtype
@pytest.mark.parametrize("shape", [*SHAPES, *ALONE], ids=str)
def test_softmax(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
    x = ordinary(shape, dtype, seed).cuda() * 3
    wide = x.double()
    exact, far = wide.softmax(-1), wide.amax(-1, keepdim=True) - wide
    for _ in range(3):
        got = operators.softmax(x)
        assert excess(got, exact, exact * (1 + far)) <= 8
        assert torch.equal(got, operators.softmax(x))
        assert excess(operators.log_softmax(x), wide.log_softmax(-1), 1 + far) <= 8


@each_dtype
def test_a_row_a_program(dtype: torch.dtype, seed: int) -> None:
    """By configuration, as Hopper takes clusters."""
    x = ordinary((1030, 15_400), dtype, seed).cuda()
    wide = x.double()
    exact, whole, steps = wide.softmax(-1), AloneConfig(), AloneConfig(8192, 32, 2)
    far = wide.amax(-1, keepdim=True) - wide
    assert excess(operators.softmax(x, config=whole), exact, exact * (1 + far)) <= 8
    exact = F.layer_norm(wide, (15_400,))
    assert excess(operators.layer_norm(x, config=whole), exact, exact.abs().max()) <= 8
    exact = F.rms_norm(wide, (15_400,), None, 1e-6)
    assert excess(operators.rms_norm(x, config=steps), exact, exact.abs().max()) <= 8


@pytest.mark.parametrize("columns", [20_480, 70_000])
def test_clusters_again(columns: int, seed: int) -> None:
    """Repeated calls, which go from C++ to the driver, get other tensors; and captured ones."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("no Hopper GPU: clusters are not the default")
    x, w = (ordinary(shape, torch.bfloat16, seed).cuda() for shape in ((64, columns), (columns,)))
    for call in (operators.softmax, lambda x: operators.rms_norm(x, w)):
        others = [ordinary(tuple(x.shape), x.dtype, seed + i).cuda() for i in range(4)]
        first = [call(other) for other in others]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call(x)
        for other, expected in zip(others, first, strict=True):
            for _ in range(3):
                assert torch.equal(call(other), expected)
            x.copy_(other)
            graph.replay()
            assert torch.equal(captured, expected)


@each_dtype
@pytest.mark.parametrize("shape", [*SHAPES, (999, 8200), (4096, 16_384)], ids=str)
def test_gradients_of_norms(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
    """Beside fp64's; those of rows by themselves, the sums over rows beside their sizes. And the
    same bits again."""
    x, dy = ((ordinary(shape, dtype, seed + i).cuda() + 0.5).to(dtype) for i in range(2))
    w, b = (ordinary(shape[-1:], dtype, seed + 2 + i).cuda() for i in range(2))
    for layer in (False, True):
        vectors = (w, b) if layer else (w,)
        given = [t.clone().requires_grad_() for t in (x, *vectors)]
        norm = operators.layer_norm if layer else operators.rms_norm
        out = norm(*given)
        got = torch.autograd.grad(out, given, dy, retain_graph=True)
        wide = [t.double().requires_grad_() for t in (x, *vectors)]
        mean = wide[0].mean(-1, keepdim=True) * layer
        away = wide[0] - mean
        eps = 1e-5 if layer else 1e-6
        rstd = (away.square().mean(-1, keepdim=True) + eps).rsqrt()
        hat = away * rstd
        exact = torch.autograd.grad(hat * wide[1] + (wide[2] if layer else 0), wide, dy.double())
        assert excess(got[0], exact[0], 8 * exact[0].abs().amax(-1, keepdim=True)) <= 8
        # Of numbers and a mean that are rounded before they differ.
        off = dy.double().abs() * ((wide[0].abs() + mean.abs()) * rstd).detach()
        sizes = [off.sum(0), dy.double().abs().sum(0)]
        for one, other, size in zip(got[1:], exact[1:], sizes, strict=False):
            assert excess(one, other, 8 * size) <= 8
        for _ in range(2):
            again = torch.autograd.grad(out, given, dy, retain_graph=True)
            assert all(torch.equal(one, other) for one, other in zip(got, again, strict=True))


def test_streams_beside_each_other(seed: int) -> None:
    """Each has words of its own, and launches take turns on the GPU."""
    inputs = [ordinary((40, 65_536), torch.bfloat16, seed + i).cuda() for i in range(4)]
    wanted = [operators.softmax(x) for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]  # type: ignore[no-untyped-call]
    for _ in range(50):
        got = []
        torch.cuda.synchronize()
        for x, stream in zip(inputs, streams, strict=True):
            with torch.cuda.stream(stream):
                got.append((operators.softmax(x), operators.layer_norm(x)))
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for (a, _), b in zip(got, wanted, strict=True))


def test_graphs(seed: int) -> None:
    """A graph's words are its own: it is replayed beside calls on another stream."""
    x = ordinary((40, 65_536), torch.bfloat16, seed).cuda()
    for _ in range(3):
        wanted = operators.rms_norm(x)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.graph(graph):
        out = operators.rms_norm(x)
    for _ in range(20):
        out.zero_()
        stream.wait_stream(torch.cuda.current_stream())
        graph.replay()
        with torch.cuda.stream(stream):
            beside = operators.rms_norm(x)
        torch.cuda.synchronize()
        assert torch.equal(out, wanted) and torch.equal(beside, wanted)
