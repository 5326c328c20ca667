"""Outputs against the same computed in fp64."""

from __future__ import annotations

import torch

ABSOLUTE = 1e-6  # of elementwise operators: what they lose where their result is small


def units(found: torch.Tensor, exact: torch.Tensor, absolute: float = ABSOLUTE) -> torch.Tensor:
    """The error of each element beyond `absolute`, in units in the last place of its type at the
    exact value; infinite where NaN or infinities do not lie alike."""
    limits = torch.finfo(found.dtype)
    wide = found.double()
    rounded = exact.to(found.dtype).double()
    size = exact.abs().clamp(limits.smallest_normal, limits.max)
    unit = torch.exp2(torch.floor(torch.log2(size))) * limits.eps
    error = ((wide - exact).abs() - absolute).clamp(min=0) / unit
    alike = (wide == rounded) | (wide.isnan() & rounded.isnan())
    ends = ~wide.isfinite() | ~rounded.isfinite()
    error = torch.where(ends & ~alike, torch.inf, error)
    # At the edge of the type the exact value may round either way.
    return torch.where(alike, 0.0, error)


def worst(found: torch.Tensor, exact: torch.Tensor, absolute: float = ABSOLUTE) -> float:
    assert found.shape == exact.shape
    return float(units(found, exact, absolute).max()) if found.numel() else 0.0


def allowed(dtype: torch.dtype) -> float:
    """Units in the last place of an elementwise result: fp32 is computed in fp32; the others are
    too, and rounded once."""
    return 2.0 if dtype == torch.float32 else 0.51


def beyond_pytorch(found: torch.Tensor, torchs: torch.Tensor) -> float:
    """Units in the last place between both from 4 on; infinite below, beyond 1e-6."""
    apart, size = (found.double() - torchs.double()).abs(), torchs.abs()
    unit = torch.nextafter(size, torch.full_like(size, torch.inf)).double() - size.double()
    near = apart[size < 4].max() < ABSOLUTE
    return float((apart / unit)[size >= 4].max()) if near else float("inf")


def excess(found: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor | float) -> float:
    """How far the output is off, beyond its one rounding, in units of fp32 at `scale`: what the
    computation in fp32 may lose. Infinite where NaN or infinities do not lie alike."""
    assert found.shape == exact.shape
    if not found.numel():
        return 0.0
    limits = torch.finfo(found.dtype)
    wide = found.double()
    rounded = exact.to(found.dtype).double()
    size = exact.abs().clamp(limits.smallest_normal, limits.max)
    unit = torch.exp2(torch.floor(torch.log2(size))) * limits.eps
    bound = torch.as_tensor(scale, dtype=torch.float64).clamp(min=1e-300) * 2.0**-23
    error = ((wide - exact).abs() - 0.51 * unit).clamp(min=0) / bound
    alike = (wide == rounded) | (wide.isnan() & rounded.isnan())
    error = torch.where(~wide.isfinite() | ~rounded.isfinite(), torch.inf, error)
    return float(torch.where(alike, 0.0, error).max())


def norm_excess(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, layer: bool,
    mean: torch.Tensor, rstd: torch.Tensor | None,
) -> float:  # fmt: skip
    """`excess` of a LayerNorm, else of an RMSNorm, and of its statistics if there are any. An
    element of the mean is rounded in proportion to the sum of sizes."""
    wide, w, b = x.double(), weight.double(), bias.double()
    m = wide.mean(-1, keepdim=True) * layer
    r = ((wide - m).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    hat = (wide - m) * r
    size = (hat.abs() + wide.abs().mean(-1, keepdim=True) * r) * w.abs()
    off = excess(out, hat * w + b * layer, size + b.abs() * layer)
    if rstd is None:
        return off
    kept = [(rstd, r[:, 0])] + ([(mean, m[:, 0])] if layer else [])
    return max(off, *(excess(got, exact, 8 * exact.abs()) for got, exact in kept))


def softmax_excess(found: torch.Tensor, x: torch.Tensor, log: bool, dim: int = -1) -> float:
    """`excess` of a softmax, or of its logarithm. In units of fp32: exp of a number that is wrong
    in its last place is off by as many places as the number is large."""
    wide = x.double()
    exact = (torch.log_softmax if log else torch.softmax)(wide, dim)
    far = (wide - wide.max(dim, keepdim=True).values).abs().nan_to_num(0.0, 0.0, 0.0)
    return excess(found, exact, 1 + far if log else exact * (1 + far))
