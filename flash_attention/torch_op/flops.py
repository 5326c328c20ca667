"""What torch.utils.flop_counter.FlopCounterMode counts: as for PyTorch's own attention, two
products of matrices forward and five backward, as if every query saw every key."""

import sys
from typing import Any

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .definition import bwd, fwd


def register_if_used() -> None:
    """Before each call that something watches: importing PyTorch's counter imports triton, and a
    counter has the formulas that there were when it was made."""
    module = sys.modules.get("torch.utils.flop_counter")
    if module is None:
        return
    formulas = module.flop_registry
    for op, formula in ((fwd, _fwd), (bwd, _bwd)):
        if op.overloadpacket not in formulas:
            module.register_flop_formula(op.overloadpacket)(formula)
            if op in formulas:  # where torch 2.4 puts it, and does not look for it
                formulas[op.overloadpacket] = formulas[op]
    for mode in _get_current_dispatch_mode_stack():
        known = getattr(getattr(mode, "counter", mode), "flop_registry", None)
        if isinstance(known, dict):
            for op in (fwd.overloadpacket, bwd.overloadpacket):
                known.setdefault(op, formulas[op])


def _fwd(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return _products(q, k, q[3] + v[3])


def _bwd(d_o: Any, d_lse: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return _products(q, k, 3 * q[3] + 2 * v[3])


def _products(q: Any, k: Any, d_head: Any) -> int:
    """Of all heads, with head dimensions that add up to `d_head`; shapes (batch, seq, heads, d)."""
    batch, seqlen_q, n_heads, _ = q
    return int(2 * batch * n_heads * seqlen_q * k[1] * d_head)
