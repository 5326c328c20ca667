"""Sums and activations in the emulator, races on, against fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.elementwise import kernels
from flash_attention.operators.elementwise.op import BlockConfig, Elementwise
from flash_attention.operators.elementwise.problem import elements
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import allowed, beyond_pytorch, worst
from .planting import found, planted
from .unary import UNARY
from .values import DTYPES, mixed, ordinary, shifted, special, with_gaps

LENGTHS = (1, 2, 31, 1000, 1024, 1025, 3000)
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
each_unary = pytest.mark.parametrize("name", UNARY)


def poisoned(like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, float("nan"))


@each_dtype
@each_unary
def test_one_operand(name: str, dtype: torch.dtype, seed: int) -> None:
    call, reference = UNARY[name]
    for n in LENGTHS:
        x = mixed(n, dtype, seed + n)
        out = poisoned(x)
        assert call(x, out=out) is out
        error = worst(out, reference(x.double()))
        assert error <= allowed(dtype), f"{error} units at n = {n}"


@each_dtype
def test_two_operands(dtype: torch.dtype, seed: int) -> None:
    for n in LENGTHS:
        x, y = mixed(n, dtype, seed + n), mixed(n, dtype, seed + n + 1)
        assert worst(operators.add(x, y), x.double() + y.double(), 0.0) <= 0.5
    pairs = special(dtype)
    x, y = pairs.repeat(len(pairs)), pairs.repeat_interleave(len(pairs))
    assert worst(operators.add(x, y), x.double() + y.double(), 0.0) <= 0.5


@each_dtype
def test_the_element_type_is_exact_where_torch_is(dtype: torch.dtype, seed: int) -> None:
    x, y = ordinary((777,), dtype, seed), ordinary((777,), dtype, seed + 1)
    assert torch.equal(operators.add(x, y), x + y)
    assert torch.equal(operators.relu(x), torch.relu(x))


@each_dtype
def test_strides_and_broadcasting(dtype: torch.dtype, seed: int) -> None:
    def draw(*shape: int) -> torch.Tensor:
        return ordinary(shape, dtype, seed)

    pairs = [
        (draw(6, 5, 7).permute(2, 0, 1), draw(7, 1, 5)),
        (draw(33), draw(4, 33)),
        (with_gaps(draw(9, 50)), draw(50, 9).T),
        (draw(2, 3, 4, 5, 6).transpose(0, 3), draw(2, 3, 4, 5, 6).transpose(0, 3)),
        (draw(3, 2, 3, 2, 3, 2).permute(5, 3, 1, 0, 2, 4), draw(2, 2, 2, 3, 3, 3)),  # copied
        (draw(1), draw()),
        (shifted(draw(2000)), draw(2000)),
    ]
    for x, y in pairs:
        assert worst(operators.add(x, y), x.double() + y.double(), 0.0) <= 0.5
        assert worst(operators.silu(x), F.silu(x.double())) <= allowed(dtype)


def test_the_output_may_be_an_operand_or_have_gaps(seed: int) -> None:
    x, y = ordinary((40, 30), torch.float32, seed), ordinary((40, 30), torch.float32, seed + 1)
    expected = x + y
    gaps = with_gaps(poisoned(x))
    assert torch.equal(operators.add(x, y, out=gaps), expected)
    assert torch.equal(operators.add(x, y, out=x), expected) and torch.equal(x, expected)


def test_empty_tensors() -> None:
    assert operators.add(torch.zeros(0, 3), torch.zeros(3)).shape == (0, 3)
    assert operators.relu(torch.zeros(0)).shape == (0,)


def test_every_configuration(seed: int) -> None:
    x, y = ordinary((9000,), torch.float16, seed), ordinary((9000,), torch.float16, seed + 1)
    for config in Elementwise("add").space(elements((x, y, x), 0.0, True), 80):
        assert torch.equal(operators.add(x, y, config=config), x + y)


@each_unary
def test_gradients(name: str, seed: int) -> None:
    call, reference = UNARY[name]
    for dtype in (torch.float32, torch.bfloat16):
        x = ordinary((700,), dtype, seed).requires_grad_()
        grad = ordinary((700,), dtype, seed + 1)
        (got,) = torch.autograd.grad(call(x), x, grad)
        exact = x.detach().double().requires_grad_()
        (wanted,) = torch.autograd.grad(reference(exact), exact, grad.double())
        assert worst(got, wanted) <= allowed(dtype)


@each_unary
def test_gradients_where_an_activation_is_almost_straight(name: str) -> None:
    """1 minus what is almost 1 would lose digits."""
    call, reference = UNARY[name]
    x = torch.linspace(0.5, 6.0, 5000).requires_grad_()
    (got,) = torch.autograd.grad(call(x), x, torch.full_like(x, 3.0))
    exact = x.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(reference(exact), exact, torch.full_like(exact, 3.0))
    assert worst(got, wanted) <= allowed(torch.float32)


def test_gradients_of_a_sum_are_those_of_broadcasting(seed: int) -> None:
    x = ordinary((3, 1, 5), torch.float32, seed).requires_grad_()
    y = ordinary((4, 1), torch.float32, seed + 1).requires_grad_()
    operators.add(x, y).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and y.grad is not None
    assert torch.equal(x.grad, torch.full((3, 1, 5), 4.0))
    assert torch.equal(y.grad, torch.full((4, 1), 15.0))


PLANTED = [
    ("add", "b = tl.load(y + at, mask=inside)\n", "b = tl.load(y + at)\n"),
    ("relu", "KIND, GRAD), mask=inside)\n\n", "KIND, GRAD))\n\n"),
    ("add", "if left >= BLOCK:", "if left > 0:"),
    ("add", "if left >= BLOCK:", "if left + 1 >= BLOCK:"),
    ("add_scalar", "+ alpha", "- alpha"),
    ("add", "z = x + y", "z = x + x"),
    ("add_scalar", "x.to(tl.float32) + alpha", "x + alpha.to(x.dtype)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "old", "new"), PLANTED)
def test_planted_bugs_are_found(kind: str, old: str, new: str, seed: int) -> None:
    x, y = ordinary((2047,), torch.float16, seed), ordinary((2047,), torch.float16, seed + 1)
    exact = {
        "add": x.double() + y.double(), "relu": x.double().relu(), "add_scalar": x.double() - 0.3,
    }  # fmt: skip
    for op, seen in (
        (Elementwise(kind), False),
        (planted(Elementwise(kind), kernels, old, new), True),
    ):
        out = poisoned(x)

        def right(op: Elementwise = op, out: torch.Tensor = out) -> bool:
            emulated.run(op, BlockConfig(), elements((x, y, out), -0.3, True), (x, y, out))
            return worst(out, exact[kind], 0.0) <= 0.51

        assert found(right) is seen


def test_a_swapped_stride_is_found(seed: int) -> None:
    x = ordinary((20, 30), torch.float32, seed)
    y = ordinary((30, 20), torch.float32, seed + 1).T
    swapped = ("i2 * y2 + i3 * y3", "i2 * y3 + i3 * y2")
    out = poisoned(x)

    def right() -> bool:
        op = planted(Elementwise("add"), kernels, *swapped)
        emulated.run(op, BlockConfig(), elements((x, y, out), 0.0, True), (x, y, out))
        return torch.equal(out, x + y)

    assert found(right)


@pytest.mark.parametrize("architecture", [80, 90])
@each_dtype
def test_loads_and_stores_of_16_bytes_and_no_spills(dtype: torch.dtype, architecture: int) -> None:
    x = torch.zeros(1001, dtype=dtype)
    for kind in ("add", "gelu_erf"):
        compiled = compile_op(
            Elementwise(kind), BlockConfig(), elements((x, x, x), 0.0, True),
            architecture=architecture,
        )  # fmt: skip
        assert compiled.spill_bytes == 0 and compiled.shared_bytes == 0
        assert "ld.global.v4.b32" in compiled.ptx and "st.global.v4.b32" in compiled.ptx


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("kind", ["gelu_erf", "gelu_tanh", "silu"])
def test_an_activation_costs_less_than_its_memory(kind: str, architecture: int) -> None:
    """One exponential an element and no branch. 16 elements: 8 of a whole block, 8 of the last."""
    x = torch.zeros(1000, dtype=torch.bfloat16)
    compiled = compile_op(
        Elementwise(kind), BlockConfig(), elements((x, x, x), 0.0, True), architecture=architecture
    )
    lines = [line.strip() for line in compiled.ptx.splitlines()]
    assert compiled.ptx.count("ex2.approx") == 16
    assert sum(line.startswith(("bra", "@")) and "bra" in line for line in lines) <= 2
    assert sum(".f32 " in line for line in lines) <= 16 * 17


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_fp32_beside_pytorch(name: str, seed: int) -> None:
    call, reference = UNARY[name]
    x = torch.cat([torch.linspace(-20, 20, 20_000), 100 * ordinary((5_000,), torch.float32, seed)])
    theirs, exact = reference(x), reference(x.double()).float()
    # PyTorch's erf on a CPU is 1.03e-6 off at 3.4552152, ours 2e-7.
    theirs = torch.where((theirs - exact).abs() > 5e-7, exact, theirs)
    assert beyond_pytorch(call(x), theirs) <= 2


@pytest.mark.parametrize("kind", ["gelu_tanh", "silu"])
def test_fp32_divides_as_pytorch_does(kind: str) -> None:
    """Else 3 units lay between both on an H200. The emulator rounds every quotient. 16-bit results
    are a product with an approximate reciprocal."""
    for dtype in DTYPES.values():
        x = torch.zeros(1000, dtype=dtype)
        ptx = compile_op(Elementwise(kind), BlockConfig(), elements((x, x, x), 0.0, True)).ptx
        wide = dtype == torch.float32
        assert ("div.rn.f32" in ptx, "rcp.approx.ftz.f32" in ptx) == (wide, not wide)
        assert "div.full.f32" not in ptx


def test_beyond_where_the_normal_distribution_was_fitted(seed: int) -> None:
    """Far from 0 GELU is x or vanishes; its gradient is 1 or vanishes."""
    x = torch.tensor([-3e38, -1e4, -100.0, -14.0, -9.0, -6.0, 6.0, 9.0, 14.0, 100.0, 3e38])
    leaf, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    y, exact = operators.gelu(leaf), F.gelu(wide)
    assert worst(y.detach(), exact.detach()) <= 2
    (got,), (wanted,) = (torch.autograd.grad(z.sum(), a) for z, a in ((y, leaf), (exact, wide)))
    assert worst(got, wanted) <= 2


def test_offsets_beyond_32_bits() -> None:
    """More elements than 32 bits count, in a tensor of one element's memory: the code is read."""
    huge = torch.empty(1, dtype=torch.float16).expand(70_000, 70_000)
    problem = elements((huge, huge, huge), 0.0, True)
    assert problem.wide
    compiled = compile_op(Elementwise("relu"), BlockConfig(), problem)
    assert "mul.lo.s64" in compiled.ptx or "mad.lo.s64" in compiled.ptx
