"""The operators in Triton on the GPU, against fp64, in memory whose margins are watched."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from flash_attention import operators
from tests.gpu.inputs import guarded
from tests.guarded import margins_ok
from tests.operators.compare import allowed, beyond_pytorch, excess, worst
from tests.operators.unary import UNARY
from tests.operators.values import DTYPES, mixed, ordinary

pytestmark = pytest.mark.gpu
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
Function = Callable[..., Any]
COLUMNS = (1, 33, 1000, 4096, 8192, 20_000, 32_768, 131_072, 1_000_003)


@each_dtype
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("n", [1, 1000, 1_000_003])
def test_activations(name: str, n: int, dtype: torch.dtype, seed: int) -> None:
    call, reference = UNARY[name]
    x, out = mixed(n, dtype, seed).cuda(), guarded((n,), dtype)
    call(x, out=out)
    assert worst(out, reference(x.double())) <= allowed(dtype) and margins_ok(out)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_fp32_beside_pytorch(name: str, seed: int) -> None:
    call, reference = UNARY[name]
    far = 100 * ordinary((1_000_000,), torch.float32, seed).cuda()
    x = torch.cat([torch.linspace(-20, 20, 4_000_000, device="cuda"), far])
    assert beyond_pytorch(call(x), reference(x)) <= 2


@each_dtype
def test_sums(dtype: torch.dtype, seed: int) -> None:
    x, y = ordinary((300, 7, 50), dtype, seed).cuda(), ordinary((50, 300), dtype, seed + 1).cuda()
    for a, b in ((x, x), (x[:, 0], y.T), (x, x[:, :1]), (x.transpose(0, 2), y[:, None, :])):
        assert torch.equal(operators.add(a, b), a + b)


@each_dtype
@pytest.mark.parametrize("columns", COLUMNS)
def test_rows(columns: int, dtype: torch.dtype, seed: int) -> None:
    rows = max(2, min(200, 2_000_000 // columns))
    x = ordinary((rows, columns), dtype, seed).cuda() * 3
    wide = x.double()
    far = wide.amax(-1, keepdim=True) - wide
    exact = wide.softmax(-1)
    assert excess(operators.softmax(x), exact, exact * (1 + far)) <= 8
    assert excess(operators.log_softmax(x), wide.log_softmax(-1), 1 + far) <= 8
    for algorithm in ("two_pass", "welford"):
        mean, var = operators.mean_var(x, algorithm=algorithm)
        assert excess(mean, wide.mean(-1), 3.0) <= 8
        assert excess(var, wide.var(-1, correction=0), 9.0) <= 16
    target = torch.randint(columns, (rows,), device="cuda")
    loss = operators.cross_entropy(x, target, reduction="none")
    assert excess(loss, F.cross_entropy(wide, target, reduction="none"), 50.0) <= 4


@each_dtype
def test_softmax_of_many_long_rows(dtype: torch.dtype, seed: int) -> None:
    for columns in (40_000, 100_000):
        for again in range(3):
            x = ordinary((300, columns), dtype, seed + again).cuda() * 3
            wide = x.double()
            exact = wide.softmax(-1)
            far = wide.amax(-1, keepdim=True) - wide
            assert excess(operators.softmax(x), exact, exact * (1 + far)) <= 8


@each_dtype
@pytest.mark.parametrize("layer", [True, False], ids=["layer", "rms"])
@pytest.mark.parametrize("shape", [(3000, 100), (500, 4096), (70, 8192), (33, 40_000)])
def test_norms(layer: bool, shape: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
    x, r = (ordinary(shape, dtype, seed + i).cuda().requires_grad_() for i in range(2))
    w = ordinary(shape[-1:], dtype, seed + 2).cuda().requires_grad_()
    grads = [ordinary(shape, dtype, seed + 3 + i).cuda() for i in range(2)]
    function = operators.layer_norm if layer else operators.rms_norm
    outputs = function(x, w, residual=r)
    total = outputs[1].detach().double().requires_grad_()
    wide = w.detach().double().requires_grad_()
    norm: Function = F.layer_norm if layer else F.rms_norm
    more: tuple[Any, ...] = (None, 1e-5) if layer else (1e-6,)
    exact = norm(total, shape[-1:], wide, *more)
    assert excess(outputs[0].detach(), exact.detach(), exact.detach().abs().max()) <= 16
    got = torch.autograd.grad(outputs, (x, r, w), grads, retain_graph=True)
    wanted = torch.autograd.grad((exact, total * 1), (total, wide), [g.double() for g in grads])
    for mine, its in zip(got, (wanted[0], *wanted), strict=True):
        assert excess(mine, its, its.abs().max()) <= 64
    again = torch.autograd.grad(outputs, (x, r, w), grads)
    assert all(map(torch.equal, got, again))


@each_dtype
@pytest.mark.parametrize("columns", [1000, 50_257])
def test_cross_entropy_backward(columns: int, dtype: torch.dtype, seed: int) -> None:
    x = (ordinary((64, columns), dtype, seed) * 3).cuda()
    target = torch.randint(columns, (64,), device="cuda")
    target[::7] = -100
    wide = x.double().requires_grad_()
    (wanted,) = torch.autograd.grad(F.cross_entropy(wide, target, label_smoothing=0.1), wide)
    for inplace in (False, True):
        leaf = x.clone().requires_grad_()
        loss = operators.cross_entropy(leaf, target, label_smoothing=0.1, inplace_backward=inplace)
        (got,) = torch.autograd.grad(loss, leaf)
        assert excess(got, wanted, wanted.abs().max()) <= 64


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("rows", "columns"), [(70_000, 100), (3000, 1000), (1100, 40_000), (600, 33_001), (9, 500_000)]
)
def test_losses_that_several_programs_add_up(
    rows: int, columns: int, smoothing: float, seed: int
) -> None:
    """Several times the same, so that what is zero before a launch is zero after it."""
    x = (ordinary((rows, columns), torch.bfloat16, seed) * 3).cuda()
    target = torch.randint(columns, (rows,), device="cuda")
    target[::7] = -100
    wanted = F.cross_entropy(x.double(), target, label_smoothing=smoothing)
    each = F.cross_entropy(x.double(), target, reduction="none", label_smoothing=smoothing)
    for _ in range(3):
        loss = operators.cross_entropy(x, target, label_smoothing=smoothing)
        assert excess(loss, wanted, 50.0) <= 4
        assert torch.equal(loss, operators.cross_entropy(x, target, label_smoothing=smoothing))
        loss = operators.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
        assert excess(loss, each, 50.0) <= 4


def test_offsets_beyond_32_bits() -> None:
    x = torch.zeros(2**31 + 1000, dtype=torch.bfloat16, device="cuda")
    x[-999:] = -1.0
    assert operators.relu(x)[-1000:].abs().max() == 0
    assert (operators.add_scalar(x, 2.0)[-999:] == 1.0).all()


def test_torch_compile_gives_the_same(seed: int) -> None:
    x, w = ordinary((40, 1000), torch.float32, seed).cuda(), torch.ones(1000, device="cuda")

    def block(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = operators.rms_norm(x, w)
        return operators.softmax(operators.gelu(operators.add(y, x)) * 2)

    compiled = torch.compile(block, fullgraph=True)
    torch.testing.assert_close(compiled(x), block(x))
    leaf = x.clone().requires_grad_()
    (got,) = torch.autograd.grad(compiled(leaf).square().sum(), leaf)
    other = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(block(other).square().sum(), other)
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("stream", [False, True], ids=["here", "another stream"])
def test_a_repeated_call_gives_what_the_checked_one_does(stream: bool, seed: int) -> None:
    """For tensors of its own each time, which keep what they hold."""
    calls: dict[str, Function] = {
        "add": lambda f, x, w: f(x, x * 2),
        "gelu": lambda f, x, w: f(x),
        "softmax": lambda f, x, w: f(x),
        "layer_norm": lambda f, x, w: f(x, w, residual=x + 1),
        "mean_var": lambda f, x, w: f(x),
        "matmul": lambda f, x, w: f(x, x.T, bias=x[:, 0].contiguous()),
    }
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(own if stream else torch.cuda.current_stream()):
        for name, call in calls.items():
            function = getattr(operators, name)
            for i in range(4):
                x = ordinary((64, 1000), torch.float16, seed + i).cuda()
                w = ordinary((1000,), torch.float16, seed + 9 + i).cuda()
                got, wanted = call(function, x, w), call(function.__wrapped__, x, w)
                pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
                assert all(torch.equal(a, b) for a, b in pairs), (name, i)


def test_a_repeated_call_of_a_thread_that_has_not_used_the_gpu(seed: int) -> None:
    x = ordinary((64, 1000), torch.float16, seed).cuda()
    wanted = operators.gelu(x)
    with ThreadPoolExecutor(1) as threads:
        assert torch.equal(threads.submit(operators.gelu, x).result(), wanted)


def test_a_cuda_graph_replays_a_call(seed: int) -> None:
    x = ordinary((64, 5000), torch.float16, seed).cuda()
    operators.softmax(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = operators.softmax(x)
    x.copy_(ordinary((64, 5000), torch.float16, seed + 1))
    graph.replay()
    assert torch.equal(y, operators.softmax(x))
