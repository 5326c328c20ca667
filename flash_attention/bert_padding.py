"""flash-attn's module of this name: rows of padded batches packed, and back. Plain PyTorch, which
has the gradients."""

import torch


def index_first_axis(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """The rows `indices` of x."""
    return x.index_select(0, indices)


def index_put_first_axis(
    values: torch.Tensor, indices: torch.Tensor, first_axis_dim: int
) -> torch.Tensor:
    """So many rows: `values` at the places `indices`, which differ, and zeros elsewhere. Indices of
    any integer type: transformers passes int32 where each sequence has one row."""
    rows = values.new_zeros((first_axis_dim, *values.shape[1:]))
    return rows.index_copy(0, indices.long(), values)


def unpad_input(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor,
    unused_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """The rows of a padded batch that its masks keep, one sequence after the other.

    Args:
        hidden_states: (batch, seqlen, ...).
        attention_mask: (batch, seqlen), bool or int: 1 for rows that are kept.
        unused_mask: the same, of rows that are kept beside them and not attended.

    Returns:
        The rows (total, ...); where each was in (batch * seqlen); cu_seqlens, int32 (batch + 1);
        the most rows of a sequence; rows of each sequence without the unused ones, int32 (batch).
        How many rows there are is known to the device, which is waited for.
    """
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    cu_seqlens = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if len(lengths) else 0
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, cu_seqlens, longest, used


def pad_input(
    hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int
) -> torch.Tensor:
    """The rows (total, ...) where `unpad_input` found them: (batch, seqlen, ...), zeros
    elsewhere."""
    rows = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return rows.view(batch, seqlen, *rows.shape[1:])
