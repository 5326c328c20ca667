"""Random calls of the operators, each compared with fp64, for as many seconds as are given.

    python -m tests.gpu.random_operators SECONDS [--kinds sums,softmax,...] [--seed NUMBER]
        [--number NUMBER] [--device cpu]

As tests.gpu.random_calls, which says what is printed, and the exit codes. The first call of each
sort compiles, a second or more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from flash_attention import operators
from tests.operators import images, matrices, values
from tests.operators.compare import allowed, excess, softmax_excess, worst
from tests.operators.unary import UNARY

from .random_problems import Draw
from .random_run import Kinds, run

Tensor = torch.Tensor
DTYPES = tuple(values.DTYPES.values())


def tensor(draw: Draw, dtype: torch.dtype, *shape: int, size: float = 1.0) -> Tensor:
    """Normally distributed, with strides of any kind."""
    x = (size * torch.randn(shape, device=draw.device)).to(dtype)
    way = draw.random.choice(("", "", "turned", "gaps", "odd"))
    if way == "turned" and len(shape) > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if way == "gaps":
        return values.with_gaps(x)
    if way == "odd":
        return values.shifted(x)
    return x


def matrix(draw: Draw) -> tuple[int, int]:
    """Rows and columns, few of one where there are many of the other."""
    columns = draw.length(1)
    return max(min(draw.length(1), 4 * draw.longest // columns), 1), columns


def gradients(y: Tensor, inputs: Sequence[Tensor], wide: Tensor, exact: Sequence[Tensor]) -> float:
    """Of a sum with random numbers, in 64 units of fp32 at the largest."""
    grad = torch.randn(y.shape, device=y.device).to(y.dtype)
    found = torch.autograd.grad(y, inputs, grad)
    expected = torch.autograd.grad(wide, exact, grad.double())
    return max(excess(a, b, b.abs().max()) / 64 for a, b in zip(found, expected, strict=True))


def sums(draw: Draw) -> float:
    """add, with shapes that are broadcast: as PyTorch, bit by bit."""
    rows, columns = matrix(draw)
    dtype = draw.random.choice(DTYPES)
    shapes = [(rows, columns), (1, columns), (rows, 1), (columns,), (2, rows, columns)]
    left, right = draw.random.choice(shapes), draw.random.choice(shapes)
    draw.tell(left, right, dtype)
    x, y = tensor(draw, dtype, *left), tensor(draw, dtype, *right)
    return 0.0 if torch.equal(operators.add(x, y), x + y) else float("inf")


def activations(draw: Draw) -> float:
    name, dtype = draw.random.choice([*UNARY]), draw.random.choice(DTYPES)
    shape = matrix(draw)
    draw.tell(name, dtype, shape)
    ours, theirs = UNARY[name]
    x = tensor(draw, dtype, *shape, size=3.0)
    return worst(ours(x), theirs(x.double())) / allowed(dtype)


def softmax(draw: Draw) -> float:
    """And log_softmax, along any dimension, and their gradients."""
    r = draw.random
    (rows, columns), dtype, log = matrix(draw), r.choice(DTYPES), r.random() < 0.5
    dim, algorithm = r.choice((-1, -1, 0)), r.choice(("online", "online", "two_pass"))
    draw.tell(rows, columns, dtype, log, dim, algorithm)
    x = tensor(draw, dtype, rows, columns, size=3.0).detach().requires_grad_()
    y = (operators.log_softmax if log else operators.softmax)(x, dim, algorithm=algorithm)
    off = softmax_excess(y.detach(), x.detach(), log, dim) / 8
    # The gradient is of the rounded result.
    kept = y.detach().double()
    grad = torch.randn(y.shape, device=y.device).to(dtype)
    (found,) = torch.autograd.grad(y, x, grad)
    wide = grad.double()
    terms = wide if log else wide * kept
    total = terms.sum(dim, keepdim=True)
    exact = wide - kept.exp() * total if log else kept * (wide - total)
    scale = terms.abs().sum(dim, keepdim=True).expand_as(exact) + wide.abs()
    return max(off, excess(found, exact, scale if log else scale * kept + 1e-30) / 16)


def moments(draw: Draw) -> float:
    (rows, columns), dtype = matrix(draw), draw.random.choice(DTYPES)
    algorithm = draw.random.choice(("two_pass", "welford"))
    correction = 1 if columns > 1 and draw.random.random() < 0.5 else 0
    draw.tell(rows, columns, dtype, algorithm, correction)
    x = tensor(draw, dtype, rows, columns, size=3.0)
    mean, var = operators.mean_var(x, correction=correction, algorithm=algorithm)
    wide = x.double()
    off = excess(mean, wide.mean(-1), 3.0) / 8
    return max(off, excess(var, wide.var(-1, correction=correction), 9.0) / 16)


def norms(draw: Draw) -> float:
    """LayerNorm and RMSNorm, and their gradients."""
    r = draw.random
    (rows, columns), dtype = matrix(draw), r.choice(DTYPES)
    layer, adds, weighs = (r.random() < 0.5 for _ in range(3))
    columns = max(columns, 8)  # of few the gradients nearly cancel
    draw.tell(rows, columns, dtype, layer, adds, weighs)
    x = tensor(draw, dtype, rows, columns).detach().requires_grad_()
    of_weight = r.choice((dtype, torch.float32))
    named: dict[str, Any] = {"eps": 1e-3}
    if weighs:
        named["weight"] = tensor(draw, of_weight, columns).detach().requires_grad_()
        if layer:
            named["bias"] = tensor(draw, of_weight, columns).detach().requires_grad_()
    if adds:
        named["residual"] = tensor(draw, dtype, rows, columns).detach().requires_grad_()
    y = (operators.layer_norm if layer else operators.rms_norm)(x, **named)
    out, total = y if adds else (y, x.detach())
    base = total.detach().double().requires_grad_()
    weights = [
        named[n].detach().double().requires_grad_() for n in ("weight", "bias") if n in named
    ]
    norm: Any = F.layer_norm if layer else F.rms_norm
    wide = norm(base, (columns,), *weights, eps=1e-3)
    off = excess(out.detach(), wide.detach(), wide.detach().abs().max()) / 16
    inputs = [x, *(named[n] for n in ("weight", "bias") if n in named)]
    return max(off, gradients(out, inputs, wide, [base, *weights]))


def cross_entropy(draw: Draw) -> float:
    r = draw.random
    (rows, columns), dtype = matrix(draw), r.choice(DTYPES)
    how: dict[str, Any] = {
        "reduction": r.choice(("mean", "sum", "none")),
        "label_smoothing": r.choice((0.0, 0.1, 1.0)),
    }  # fmt: skip
    z_loss, inplace = r.choice((0.0, 1e-3)), r.choice((None, True, False))
    draw.tell(rows, columns, dtype, how, z_loss, inplace)
    x = tensor(draw, dtype, rows, columns, size=3.0)
    target = torch.randint(columns, (rows,), device=draw.device)
    target[torch.rand(rows, device=draw.device) < 0.2] = -100
    target[0] = columns - 1  # one counts
    wide = x.double().requires_grad_()
    exact = F.cross_entropy(wide, target, **how)
    squares = wide.logsumexp(-1).square() * z_loss * (target != -100)
    count = int((target != -100).sum()) if how["reduction"] == "mean" else 1
    exact = exact + (squares if how["reduction"] == "none" else squares.sum() / count)
    (expected,) = torch.autograd.grad(exact.sum(), wide)
    leaf = x.clone().requires_grad_()
    loss = operators.cross_entropy(leaf, target, z_loss=z_loss, inplace_backward=inplace, **how)
    off = excess(loss.detach(), exact.detach(), 50.0 * (rows if loss.dim() == 0 else 1)) / 4
    (found,) = torch.autograd.grad(loss.sum(), leaf)
    # What is left of a weight and the target's 1 is rounded as they are.
    scale = expected.abs().max().clamp(min=1 / (16 * count))
    return max(off, excess(found, expected, scale) / 64)


def of_products(draw: Draw, off: float, precision: str) -> float:
    cut = matrices.CUT if draw.device == "cuda" else 1
    return off / (cut * matrices.ALLOWED[precision])


def matmul(draw: Draw) -> float:
    r = draw.random
    most = 1500 if draw.device == "cuda" else 80
    m, n, k = (min(draw.length(1), most) for _ in range(3))
    dtype, version = r.choice(DTYPES), r.choice(("pipelined", "pipelined", "tiled", "direct"))
    how: dict[str, Any] = {}
    precision = "ieee"
    if version != "direct":
        if dtype == torch.float32:
            precision = r.choice(("ieee", "tf32", "tf32x3"))
        how["activation"] = r.choice([*matrices.FUNCTIONS])
        if r.random() < 0.5:
            how["bias"] = tensor(draw, dtype, n)
        if r.random() < 0.3:
            how["residual"] = tensor(draw, dtype, m, n)
    draw.tell(m, n, k, dtype, version, precision, [*how], how.get("activation"))
    a, b = tensor(draw, dtype, m, k), tensor(draw, dtype, k, n)
    y = operators.matmul(a, b, version=version, precision=precision, **how)
    return of_products(draw, matrices.off(y, a, b, **how), precision)


def conv2d(draw: Draw) -> float:
    r = draw.random
    most = 40 if draw.device == "cuda" else 9
    groups = r.choice((1, 1, 1, 2, 3))
    channels, filters = (groups * r.randrange(1, most) for _ in range(2))
    taps, dilation = ([r.randrange(1, n) for _ in range(2)] for n in (5, 3))
    stride, padding = [r.randrange(1, 4) for _ in range(2)], [r.randrange(0, 4) for _ in range(2)]
    size = [d * (t - 1) + 1 + r.randrange(most) for t, d in zip(taps, dilation, strict=True)]
    how: dict[str, Any] = {
        "stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation),
        "groups": groups,
    }  # fmt: skip
    algorithm, dtype = r.choice(("implicit", "implicit", "im2col", "direct")), r.choice(DTYPES)
    draw.tell(channels, filters, size, taps, how, algorithm, dtype)
    x = tensor(draw, dtype, r.randrange(1, 5), channels, *size)
    if r.random() < 0.5:
        x = x.contiguous(memory_format=torch.channels_last)
    weight = tensor(draw, dtype, filters, channels // groups, *taps)
    more: dict[str, Any] = {}
    if algorithm != "direct":
        more["activation"] = r.choice([*matrices.FUNCTIONS])
        if r.random() < 0.5:
            more["bias"] = tensor(draw, dtype, filters)
    y = operators.conv2d(x, weight, algorithm=algorithm, **how, **more)
    return of_products(draw, images.off(y, x, weight, **how, **more), "ieee")


KINDS = Kinds(
    {
        "sums": sums, "activations": activations, "softmax": softmax, "moments": moments,
        "norms": norms, "cross_entropy": cross_entropy, "matmul": matmul, "conv2d": conv2d,
    },
    longest={"cuda": 300_000, "cpu": 200},
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    return run(KINDS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
