"""The gradient of sinks, and what may be wrong about it.

A sink's weight s has the value 0, and moves the log-sum-exp: its gradient is the sum over rows of
s (dlse - D), where D = dO . O. D is of an output that was rounded to 16 bits, made of weights that
were rounded too, so that the error of a row's D is the sum of dO_c O_c (error of O_c) over columns
and P_j (dO . V_j) (error of P_j) over keys, with independent errors below eps. All rows' errors add
up as the root of a sum of squares:

    eps sqrt(sum over rows s^2 (sum_c (dO_c O_c)^2 + sum_j (P_j dO . V_j)^2))

The errors are some 0.45 of that at one standard deviation (0.41 for a single rounding), and the
worst of 180 heads was 1.2: twice as much is allowed. A gradient that is 2 % off is 1.5 of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule, served_weights

FACTOR = 2.0


@dataclass
class SinkGradient:
    """Of each head's sink, in fp64, summed up over sequences."""

    rule: ServeRule
    sinks: torch.Tensor
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.gradient = torch.zeros(len(self.sinks), dtype=torch.float64, device=self.sinks.device)
        self.squares = torch.zeros_like(self.gradient)

    def add(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        d_o: torch.Tensor,
        d_lse: torch.Tensor | None,
    ) -> None:
        """A sequence: (rows, heads, d) each; d_lse is (heads, rows)."""
        scale = q.shape[-1] ** -0.5 if self.rule.scale is None else self.rule.scale
        for head, sink in enumerate(self.sinks):
            kv_head = head * k.shape[1] // q.shape[1]
            queries, outer = q[:, head].double(), d_o[:, head].double()
            keys, values = k[:, kv_head].double(), v[:, kv_head].double()
            scores = scale * (queries @ keys.T)
            weights, _ = served_weights(scores, slice(None), len(queries), self.rule, sink)
            of_sink = 1 - weights.sum(dim=1)
            parts = outer * (weights @ values)
            change = -parts.sum(dim=1) + (0 if d_lse is None else d_lse[head].double())
            self.gradient[head] += (of_sink * change).sum()
            of_keys = weights * (outer @ values.T)
            squares = parts.square().sum(dim=1) + of_keys.square().sum(dim=1)
            self.squares[head] += (of_sink.square() * squares).sum()

    def worst(self, found: torch.Tensor) -> float:
        """The largest error of a head, in units of what is allowed: at most 1 is right."""
        eps = DType.from_torch_dtype(self.dtype).eps
        # 1e-5: sums in fp32, of which 1 - the other weights is one here.
        allowed = FACTOR * eps * self.squares.sqrt() + 1e-5
        return float(((found.double() - self.gradient).abs() / allowed).nan_to_num(torch.inf).max())
