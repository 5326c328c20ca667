"""What torch.utils.flop_counter.FlopCounterMode counts: as for PyTorch's own attention, two
products of matrices forward and five backward, as if every query saw every key."""

from typing import Any

from torch.utils.flop_counter import register_flop_formula

from .definition import bwd, fwd


def _fwd(q: Any, k: Any, *_: Any, **__: Any) -> int:
    return 2 * _product(q, k)


def _bwd(d_o: Any, d_lse: Any, q: Any, k: Any, *_: Any, **__: Any) -> int:
    return 5 * _product(q, k)


def _product(q: Any, k: Any) -> int:
    """q times k transposed, of all heads; shapes (batch, seq, heads, d_head)."""
    batch, seqlen_q, n_heads, d_head = q
    return int(2 * batch * n_heads * seqlen_q * k[1] * d_head)


def register() -> None:
    register_flop_formula(fwd.overloadpacket)(_fwd)
    register_flop_formula(bwd.overloadpacket)(_bwd)
