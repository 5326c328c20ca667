"""Who can compute attention here: our kernels and the references, each by a word."""

from __future__ import annotations

from functools import cache
from typing import Any

from flash_helpers.base.lazy import torch
from flash_helpers.check.peers import Attention, find_peer, package_function, sdpa_function

from .measure import SkippedError
from .row import CEILING as CEILING

OURS = "ours"
# The first that a table has is what its column `relative` refers to.
REFERENCES = {
    "fa2": "FlashAttention-2: flash-attn, else PyTorch's build of it",
    "fa3": "flash-attn 3",
    "fa4": "flash-attn 4",
    "cudnn": "cuDNN through PyTorch",
    "flex": "PyTorch flex_attention, compiled",
}
PROVIDERS = (OURS, *REFERENCES)
_MODULES = {"fa3": "flash_attn_interface", "fa4": "flash_attn.cute"}


@cache
def find_reference(provider: str, causal: bool = False) -> tuple[str, str, Attention]:
    """(label, note, function). Raises SkippedError with the reason if it is not here."""
    if provider == "fa2":
        peer = find_peer("v2", "cuda", causal)
        return peer.name, peer.note, peer
    if provider in _MODULES:
        function, problem = package_function(_MODULES[provider], causal)
        if function is None:
            raise SkippedError(problem)
        return REFERENCES[provider], "", function
    if provider == "cudnn":
        return "PyTorch cuDNN", "", sdpa_function("CUDNN_ATTENTION", causal)
    if provider == "flex":
        return "PyTorch flex_attention", "", _flex(causal)
    raise ValueError(f"provider {provider!r} is not known: expected one of {', '.join(PROVIDERS)}")


def _flex(causal: bool) -> Attention:
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    except ImportError as error:
        raise SkippedError(f"this torch has no flex_attention: {error}") from error
    compiled: Any = torch.compile(flex_attention, dynamic=False)

    @cache
    def visible(seq_len: int, device: str) -> Any:
        return create_block_mask(
            lambda batch, head, query, key: query >= key, None, None, seq_len, seq_len, device
        )

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        mask = visible(q.shape[2], str(q.device)) if causal else None
        output: torch.Tensor = compiled(
            q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
        )
        return output.transpose(1, 2)

    return attention
