"""Row errors of ours and its peers on the same tensors, against attention in fp64."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference

from ..bench.distributions import draw
from ..bench.providers import OURS, find_reference

if TYPE_CHECKING:
    import torch

    Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """Inputs of one kind and shape: batch 1, `heads` heads, equal lengths of queries and keys."""

    distribution: str
    dtype: DType
    d_head: int
    seq_len: int
    heads: int
    causal: bool

    def __str__(self) -> str:
        mask = "causal" if self.causal else "full"
        return f"{self.distribution} {self.dtype.name} d{self.d_head} {self.seq_len} {mask}"


@dataclass(frozen=True)
class RowErrors:
    """||o - ref|| / ||ref|| over all rows, in eps: 2^-11 for fp16, 2^-8 for bf16."""

    rows: int
    worst: float
    quantile: float  # 99.9 % of the rows are at most this
    mean: float


def row_errors(o: torch.Tensor, reference: torch.Tensor, eps: float) -> RowErrors:
    """Of o (…, d) against the reference in fp64. NaN, and any error in a row of zeros, is
    infinite."""
    import torch

    error = (o.to(reference.dtype) - reference).norm(dim=-1).flatten()
    size = reference.norm(dim=-1).flatten()
    rows = torch.where(error == 0, error, error / size) / eps
    rows = torch.where(rows.isnan(), torch.inf, rows)
    nth = max(1, round(0.999 * rows.numel()))
    quantile = rows.kthvalue(nth).values
    return RowErrors(rows.numel(), float(rows.max()), float(quantile), float(rows.mean()))


def _functions(case: Case, providers: Iterable[str]) -> Iterator[tuple[str, Attention]]:
    """Raises SkippedError for a peer that is not here."""
    import flash_attention

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        o = flash_attention.flash_attn_func(q, k, v, causal=case.causal)
        assert not isinstance(o, tuple)
        return o

    for provider in providers:
        if provider == OURS:
            yield OURS, ours
        else:
            _, _, attention = find_reference(provider, case.causal)
            yield provider, attention


def measure(
    case: Case, functions: Mapping[str, Attention], generator: torch.Generator
) -> Iterator[dict[str, Any]]:
    """A row for each function, all on the same tensors."""
    shape = (1, case.seq_len, case.heads, case.d_head)
    q, k, v = draw(case.distribution, shape, shape, case.dtype.to_torch_dtype(), generator)
    reference, _ = attention_reference(q, k, v, fp64=True, causal=case.causal)
    for provider, attention in functions.items():
        row: dict[str, Any] = {"provider": provider, **asdict(case), "dtype": case.dtype.name}
        try:
            row |= asdict(row_errors(attention(q, k, v), reference, case.dtype.eps))
        except Exception as error:  # a peer refuses in its own way
            row["error"] = str(error).splitlines()[0][:200]
        yield row


def measure_all(
    cases: Iterable[Case], providers: Iterable[str], generator: torch.Generator
) -> Iterator[dict[str, Any]]:
    missing: set[str] = set()
    for case in cases:
        found: dict[str, Attention] = {}
        for provider in providers:
            try:
                found |= dict(_functions(case, [provider]))
            except Exception as error:  # not installed, or not for this mask
                if provider not in missing:
                    print(f"{provider}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
                missing.add(provider)
        yield from measure(case, found, generator)
