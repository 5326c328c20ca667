"""Attention of models of Hugging Face's transformers. Importing this module registers it:

    import flash_attention.transformers
    model = AutoModel.from_pretrained(..., attn_implementation="attention_from_scratch")

A call that these kernels do not serve (a mask that hides more than what lies ahead, dropout, fp32)
is transformers' own sdpa attention's.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from .drop_in.sdpa_kernels import is_served
from .front_door import flash_attn_func

# transformers takes each name with "flash" in it for the package of that name.
NAME = "attention_from_scratch"


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """q, k and v (batch, heads, seq, d_head); the output (batch, seq, heads, d_head). Without a
    mask every key counts, or with `is_causal`, by default the module's, those that are not ahead.

    Raises ValueError for a model that caps its scores or has sinks: what sdpa would leave out.
    """
    for name, means in (("softcap", "caps its scores"), ("s_aux", "has sinks")):
        if others.get(name) is not None:
            raise ValueError(
                f"{type(module).__name__} {means} ({name}), and neither these kernels nor sdpa do: "
                'attn_implementation="eager" does'
            )
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    causal = causal and query.shape[2] > 1
    square = query.shape[2] == key.shape[2]
    plain = attention_mask is None and not dropout
    plain = plain and others.get("position_bias") is None and others.get("cache") is None
    if plain and (square or not causal) and is_served(query, key, value):
        q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        o = flash_attn_func(q, k, v, softmax_scale=scaling, causal=causal)
        assert isinstance(o, torch.Tensor)
        return o, None
    found: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask,
        dropout=dropout, scaling=scaling, is_causal=is_causal, **others,
    )  # fmt: skip
    return found


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)  # None where nothing but is_causal hides a key
