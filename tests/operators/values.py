"""Inputs of the operators' tests: ordinary numbers, and those at which kernels go wrong."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def special(dtype: torch.dtype) -> torch.Tensor:
    """Zeros, ones, subnormal, smallest, largest numbers, infinities and NaN."""
    limits = torch.finfo(dtype)
    positive = [
        0.0, 1.0, 0.5, 3.0, 20.0, 100.0, limits.smallest_normal, limits.smallest_normal / 4,
        limits.eps, limits.max, limits.max / 2, 65000.0, 1e-7, float("inf"),
    ]  # fmt: skip
    return torch.tensor([*positive, *(-x for x in positive), float("nan")]).to(dtype)


def ordinary(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random).to(dtype)


def rows_of_extremes(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """For a softmax whose programs or threads have parts of a row: among seven rows each part with
    another maximum, one with three finite numbers, -inf alone, a NaN, numbers whose exponentials
    are none, and zero."""
    x = ordinary((rows, columns), dtype, seed) * 5
    x[1] += torch.linspace(-20, 20, columns).to(dtype)
    x[2, 3:] = -float("inf")
    x[3] = -float("inf")
    x[4, 100] = float("nan")
    x[5] += 300
    x[6] -= 300
    return x


def rows_off_centre(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """For a norm whose programs or threads have parts of a row: each with another mean, and one of
    zeros."""
    x = ordinary((rows, columns), dtype, seed) + 3
    x[2] = 0
    x[1] += torch.linspace(-30, 30, columns).to(dtype)
    return x


def mixed(n: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """`n` numbers: the special ones scattered among ordinary ones of many magnitudes."""
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(n, generator=random) * 2.0 ** torch.randint(-4, 4, (n,), generator=random)
    values = values.to(dtype)
    few = special(dtype)
    places = torch.randperm(n, generator=random)[: len(few)]
    values[places] = few[: len(places)]
    return values


def with_gaps(values: torch.Tensor) -> torch.Tensor:
    """The same values in memory with gaps: every second element along the last dimension."""
    wide = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), float("nan"))
    wide[..., ::2] = values
    return wide[..., ::2]


def shifted(values: torch.Tensor) -> torch.Tensor:
    """The same values at an address that is a multiple of the element only."""
    longer = values.new_full((values.numel() + 1,), float("nan"))
    longer[1:] = values.flatten()
    return longer[1:].view(values.shape)


def every_pair(**axes: Mapping[str, Any]) -> pytest.MarkDecorator:
    """The axes' combinations, by the names of their values. Every second is a slow test: of three
    axes and more, the others have each pair of two axes' values."""
    made = []
    for chosen in itertools.product(*(enumerate(axis.items()) for axis in axes.values())):
        odd = sum(place for place, _ in chosen) % 2
        names, values = zip(*(named for _, named in chosen), strict=True)
        marks = pytest.mark.slow if odd else ()
        made.append(pytest.param(*values, id="-".join(names), marks=marks))
    return pytest.mark.parametrize(list(axes), made)
