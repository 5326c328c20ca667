"""What a serving call returns."""

from dataclasses import replace

import torch

from ..checks.memory import check_no_overlap
from ..checks.readable import readable
from .launch import Call, launch
from .short_way import Given
from .tensors import as_batch, check_out, filled_up

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor] | tuple[torch.Tensor, torch.Tensor, None]


def run(
    call: Call,
    out: object,
    d_v: int,
    *,
    with_lse: bool,
    with_probs: bool = False,
    given: Given = (),
) -> Result:
    """Launches the call, whose values have `d_v` columns without their padding. Calls that are
    `given` alike go the short way later. Raises TypeError or ValueError for an `out` that is not
    like the result."""
    q = call.q
    shape = (*q.shape[:-1], d_v)
    if out is None:
        o = torch.empty(shape, dtype=q.dtype, device=q.device)
    else:
        o = check_out(out, q, shape)
        check_no_overlap({"out": o}, call.tensors)
    padded = filled_up(o)
    outputs = {"o": padded}
    if with_lse or with_probs:
        sizes = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
        outputs["lse"] = torch.empty(sizes, dtype=torch.float32, device=q.device)
    if o.numel() and call.batch:
        read = readable(as_batch(q)).view(q.shape)
        tensors = call.tensors | {"q": read}
        launch(replace(call, tensors=tensors, outputs=outputs, given=given))
    if padded is not o:
        o.copy_(padded[..., :d_v])
    return answer(o, outputs.get("lse"), with_lse=with_lse, with_probs=with_probs)


def answer(
    o: torch.Tensor, lse: torch.Tensor | None, *, with_lse: bool, with_probs: bool
) -> Result:
    """(out, lse) where the log-sum-exp is asked for, as functions of flash-attn do, and a None
    behind it in place of the probabilities."""
    if not (with_lse or with_probs):
        return o
    assert lse is not None
    return (o, lse, None) if with_probs else (o, lse)
