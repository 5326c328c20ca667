"""torch.autocast: q, k and v in fp32 are cast to its dtype, as for PyTorch's own attention; those
in fp16 and bf16 stay as they are."""

import torch

Tensors3 = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def cast(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors3:
    """The tensors, those in fp32 in autocast's dtype for the device of q where it is on; what is no
    tensor stays for the checks to refuse."""
    device = getattr(getattr(q, "device", None), "type", "")
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    q, k, v = (x.to(dtype) if getattr(x, "dtype", None) is torch.float32 else x for x in (q, k, v))
    return q, k, v
