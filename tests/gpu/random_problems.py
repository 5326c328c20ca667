"""What random calls are drawn from, and when their rows are right (random_calls.py)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.check.gradients import HALF_OF_SMALLEST, Gradients
from flash_helpers.check.serving import ServeRule, attend_sequence
from tests.serving.problems import Batch

HEADS = (64, 96, 128, 192, 256)  # with kernels of their own
ROWS = 0.9  # eps


@dataclass(frozen=True)
class Draw:
    """Draws a problem of sequences that are at most so long, for a device."""

    random: random.Random
    device: str
    longest: int
    told: list[str] = field(default_factory=list)

    def tell(self, *parts: object) -> None:
        """What is printed if the problem fails."""
        self.told.append(" ".join(map(str, parts)))

    def length(self, least: int = 0) -> int:
        """Short ones as often as long ones, some of them beside a multiple of 64."""
        n = round(2 ** self.random.uniform(0, math.log2(self.longest)))
        if self.random.random() < 0.3:
            n = max(n // 64, 1) * 64 + self.random.choice((-1, 0, 1))
        return max(min(n, self.longest), least) if self.random.random() < 0.95 else least

    def lengths(self, n: int) -> list[int]:
        return [self.length() for _ in range(n)]

    def d_head(self) -> int:
        return self.random.choice(HEADS if self.random.random() < 0.6 else range(8, 257, 8))

    def heads(self, most: int = 16) -> tuple[int, int]:
        """Of queries, and of keys."""
        kv_heads = self.random.choice((1, 1, 2, 3, 4, 8))
        group = self.random.choice((1, 1, 2, 3, 4, 8, 12))
        return (kv_heads * group, kv_heads) if kv_heads * group <= most else (group, 1)

    def side(self) -> int:
        """Of a window."""
        return self.random.choice(
            (-1, -1, 0, self.random.randrange(300), self.random.randrange(2000))
        )

    def rule(self) -> ServeRule:
        r = self.random
        return ServeRule(
            causal=r.random() < 0.5,
            window=(self.side(), self.side()) if r.random() < 0.4 else (-1, -1),
            softcap=r.choice((0.0, 0.0, 0.0, 1.5, 30.0)),
            scale=r.choice((None, None, None, 0.3, 0.05, -0.1)),
        )

    def dtype(self) -> torch.dtype:
        return self.random.choice((torch.float16, torch.bfloat16))

    def sinks(self, heads: int) -> torch.Tensor | None:
        return torch.randn(heads, device=self.device) if self.random.random() < 0.3 else None

    def rows(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """(batch, seq, heads, d), normally distributed, with strides and an address of any kind."""
        x = torch.randn(shape, device=self.device).to(dtype)
        way = self.random.choice(("", "", "heads", "within", "odd", "sequence"))
        if way == "heads":  # outside
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        if way == "within":  # a larger tensor
            larger = x.new_full((x.shape[0], x.shape[1] + 3, x.shape[2] + 1, x.shape[3]), math.nan)
            larger[:, 1:-2, :-1] = x
            return larger[:, 1:-2, :-1]
        if way == "odd":  # cannot be read 16 bytes at a time
            odd = x.new_full((*x.shape[:3], x.shape[3] + 1), math.nan)
            odd[..., 1:] = x
            return odd[..., 1:]
        if way == "sequence":  # outside
            return x.transpose(0, 1).contiguous().transpose(0, 1)
        return x


def scatter(d: int) -> float:
    """How much worse the worst of many rows is where they have fewer than 64 elements: the sum of
    so few squares scatters more, here taken at 4.5 standard deviations (Wilson and Hilferty's
    quantile of chi squared)."""

    def worst(n: int) -> float:
        return math.sqrt((1 - 2 / (9 * n) + 4.5 * math.sqrt(2 / (9 * n))) ** 3)

    return max(worst(d) / worst(64), 1.0)


def row_error(
    o: torch.Tensor, lse: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    rule: ServeRule, leftpad: int = 0, sinks: torch.Tensor | None = None,
) -> float:  # fmt: skip
    """The worst row of a sequence's output, 1: just right; its log-sum-exps must be right to 1e-4.

    A row may be 0.9 eps of the root of ||o||^2 + sum (weight ||v||)^2 off, which its own rounding
    and that of its weights come to: where the two are equal that is the row rule
    (check/tolerance.py), and where many values cancel in few elements the row alone says nothing.
    """
    dtype = DType.from_torch_dtype(o.dtype)
    expected, expected_lse = attend_sequence(q, k, v, rule, leftpad=leftpad, sinks=sinks)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-4, atol=1e-4)
    # The squares of weights are weights of twice the scores, by other sums.
    scale = q.shape[-1] ** -0.5 if rule.scale is None else rule.scale
    twice = replace(rule, scale=2 * scale, softcap=2 * rule.softcap)
    norms = v.double().square().sum(dim=-1, keepdim=True)
    squares, square_lse = attend_sequence(q, k, norms, twice, leftpad=leftpad)
    of_weights = squares[..., 0] * (square_lse - 2 * expected_lse).exp().nan_to_num(0.0).T
    root = (expected.square().sum(dim=-1) + of_weights).sqrt()
    allowed = (
        ROWS * scatter(o.shape[-1]) * dtype.eps * root
        + HALF_OF_SMALLEST[dtype] * o.shape[-1] ** 0.5
    )
    allowed.masked_fill_(root == 0, 0.0)  # nothing is seen
    error = (o.double() - expected).norm(dim=-1)
    worst = torch.where(error == 0, 0.0, error / allowed)
    return float(worst.nan_to_num(math.inf).max())


def batch_error(batch: Batch, results: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    assert len(results) == len(batch.queries)
    return max(
        (
            row_error(o, lse, batch.q[i], batch.k[i], batch.v[i], batch.rule, batch.leftpad[i],
                      batch.sinks)
            for i, (o, lse) in enumerate(results) if batch.queries[i]
        ),
        default=0.0,
    )  # fmt: skip


def gradient_error(reference: Gradients, found: dict[str, torch.Tensor], d: int) -> float:
    """The worst row of some gradients, 1: just right."""
    return max(reference.worst_rows(found).values()) / gradient_margin(d)


def gradient_margin(d: int) -> float:
    """Beyond the rule of check/gradients.py, which is calibrated on some hundred problems, with
    heads of 64 and more: of 2,700 others the worst row had 1.03, of heads of 8 2.1."""
    return 1.25 * scatter(d) ** 2
