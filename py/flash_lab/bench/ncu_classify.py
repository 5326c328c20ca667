"""Whose kernel is it? Told from the symbol alone, as ncu prints it."""

import re
from dataclasses import dataclass

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.names import config_of_kernel

OURS, V2, V3, UNKNOWN = "ours", "v2", "v3", "unknown"
PROVIDERS = (OURS, V2, V3)

# What ncu profiles: every name with one of these words. It is wider than the patterns below, so
# that a reference under a new name is listed as unknown instead of missing. Torch's own kernels
# (random numbers, comparisons, the fp32 reference) have none of them; profiling all takes minutes.
KERNEL_FILTER = "regex:.*(flash|Flash|sdpa|fmha).*"

# Helpers that a call of flash-attn launches beside its main kernel are theirs too.
_PEERS: tuple[tuple[str, str, str], ...] = (
    # FlashAttention-4 (CuTe DSL) before the others: newer releases begin their names as ours do.
    (V3, "FlashAttention-4", r"FlashAttentionForward(?:Sm[0-9]+|Combine)?"),
    (V3, "FlashAttention-3", r"flash::(?:enable_sm[0-9a-z_]+<\s*flash::)?FlashAttnFwd"),
    (V3, "FlashAttention-3", r"flash::prepare_varlen_num_blocks_kernel"),
    (V3, "cuDNN", r"cudnn_generated_\w*sdpa|cudnn\w*(?:fmha|flash_fprop)"),
    (V2, "FlashAttention-2 (PyTorch)", r"pytorch_flash::flash_fwd\w*_kernel\b"),
    (V2, "FlashAttention-2", r"\bflash_fwd\w*_kernel<"),
)
_DTYPES = (
    (DType.BF16, r"bfloat16|(?<![a-z])bf16|ptrbf16"),
    (DType.FP16, r"half_t|__half|(?<![a-z])fp?16(?![0-9])|ptrf16"),
)
_INT = r"(?:\(int\))?([0-9]+)"  # demanglers differ
_FA2_TILE = re.compile(f"Flash_fwd_kernel_traits<{_INT}, {_INT}, {_INT},")  # d, B_r, B_c


@dataclass(frozen=True)
class Identity:
    """`label` is what tables show; `tile` is (query rows, key rows) where the symbol tells it."""

    provider: str
    label: str
    dtype: DType | None = None
    config: KernelConfig | None = None
    tile: tuple[int, int] | None = None


def classify(symbol: str) -> Identity:
    config = config_of_kernel(symbol)
    if config is not None:
        return Identity(OURS, config.short_form(), config.dtype, config, config.blocks())
    for provider, label, pattern in _PEERS:
        if re.search(pattern, symbol):
            match = _FA2_TILE.search(symbol)
            peer_tile = (int(match[2]), int(match[3])) if match else None
            name = label if label == "cuDNN" else f"{provider.upper()} {label}"
            return Identity(provider, name, _dtype(symbol), None, peer_tile)
    return Identity(UNKNOWN, symbol)


def _dtype(symbol: str) -> DType | None:
    """None where the name does not say, or says both. cuDNN's kernels have `f16` in their names for
    both types (seen on an H200, cuDNN 9.19)."""
    if "cudnn" in symbol:
        return None
    found = [dtype for dtype, pattern in _DTYPES if re.search(pattern, symbol)]
    return found[0] if len(found) == 1 else None
