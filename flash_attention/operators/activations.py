"""Activation functions of numbers in fp32, and their derivatives; other kernels end with them."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

NAMES = ("relu", "gelu_tanh", "gelu_erf", "silu")


@triton.jit
def activate(x, KIND: tl.constexpr, ROUNDED: tl.constexpr = False):
    """The function of that name; NaN stays NaN, as in PyTorch. ROUNDED: divisions are, as PyTorch's
    of fp32 are; else they may be two units off, which 16-bit results do not show."""
    if KIND == "relu":
        y = tl.where(x < 0.0, 0.0, x)
    elif KIND == "silu":
        y = damped(x, x, ROUNDED)
    elif KIND == "gelu_tanh":
        # 0.5 (1 + tanh u) is the logistic function of 2 u, which cancels nothing for negative u.
        y = damped(x, 2.0 * gelu_inner(x), ROUNDED)
    elif KIND == "gelu_erf":
        y = x * below(x)
    else:
        tl.static_assert(KIND == "none", "an activation that is not known")
        y = x
    return y


@triton.jit
def damped(x, y, ROUNDED: tl.constexpr):
    """x times the logistic function of y. Not ROUNDED, in five instructions: Triton's exponential
    and quotient also take care of denormal numbers, which costs the persistent product of matrices
    12 us of 201 (docs/results/operators-h200.md)."""
    if ROUNDED:
        z = tl.div_rn(x, 1.0 + tl.exp(-y))
    else:
        z = tl.inline_asm_elementwise(
            """{
            .reg .f32 e;
            mul.f32 e, $2, 0fBFB8AA3B;  // -log2(e)
            ex2.approx.ftz.f32 e, e;
            add.f32 e, e, 0f3F800000;
            rcp.approx.ftz.f32 e, e;
            mul.f32 $0, $1, e;
            }""",
            "=f,f,f",
            [x, y],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return z


@triton.jit
def scaled_bias(bias, FOLDED: tl.constexpr):
    """A bias as `activate_sum` takes it, in fp32."""
    y = bias.to(tl.float32)
    if FOLDED:
        y *= -1.4426950408889634  # -log2(e)
    return y


@triton.jit
def activate_sum(x, bias, KIND: tl.constexpr, FOLDED: tl.constexpr):
    """The function of that name of x and a scaled bias, for 16-bit results. Folded, which SiLU can
    be, in five instructions with the sum: y = -log2(e) (x + bias), over -log2(e) (1 + 2^y). Not for
    bf16: y overflows where the sum is beyond 2.35e38 in size."""
    if FOLDED:
        z = tl.inline_asm_elementwise(
            """{
            .reg .f32 y, e;
            fma.rn.f32 y, $1, 0fBFB8AA3B, $2;  // -log2(e)
            ex2.approx.ftz.f32 e, y;
            fma.rn.f32 e, e, 0fBFB8AA3B, 0fBFB8AA3B;
            rcp.approx.ftz.f32 e, e;
            mul.f32 $0, y, e;
            }""",
            "=f,f,f",
            [x, bias],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        z = activate(x + bias, KIND)
    return z


@triton.jit
def derivative(x, KIND: tl.constexpr):
    """Of `activate` at x; at the corner of ReLU it is 0."""
    if KIND == "relu":
        y = tl.where(x <= 0.0, 0.0, 1.0)
    elif KIND == "silu":
        s = 1.0 / (1.0 + tl.exp(-x))
        y = s * (1.0 + x * (1.0 - s))
    elif KIND == "gelu_tanh":
        # 1 - s as e s, which cancels nothing where s is almost 1; e stays finite.
        e = tl.exp(tl.minimum(-2.0 * gelu_inner(x), 80.0))
        s = 1.0 / (1.0 + e)
        slope = 1.5957691216057308 * (1.0 + 3.0 * 0.044715 * x * x)
        y = s + x * s * (e * s) * slope
    elif KIND == "gelu_erf":
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        y = below(x) + x * density
    else:
        tl.static_assert(KIND == "none", "an activation that is not known")
        y = tl.full(x.shape, 1.0, tl.float32)
    return y


@triton.jit
def gelu_inner(x):
    """What the tanh of the approximate GELU is taken of: sqrt(2 / pi) (x + 0.044715 x^3)."""
    return 0.7978845608028654 * (x + 0.044715 * x * x * x)


@triton.jit
def below(x):
    """The share of the normal distribution below x, with an error of 5e-8. That below -|x| is
    2^-power; the power, a polynomial fitted up to 5.6, goes on growing beyond. libdevice's erf
    takes twice as many instructions, and branches at every element."""
    size = tl.abs(x)
    power = 2.050179546131403e-06 * size - 3.00652754958719e-05
    power = power * size + 0.00014245144848246127
    power = power * size + 0.0002409290690086756
    power = power * size - 0.007196306250989437
    power = power * size + 0.05258502438664436
    power = power * size + 0.45918068289756775
    power = power * size + 1.1511080265045166
    power = power * size + 1.0
    tail = tl.exp2(-power)
    return tl.where(x < 0.0, tail, 1.0 - tail)
