"""What shows that the wheel without kernels works where it was installed; run by that environment's
own Python."""

SMOKE = """
import sys
from pathlib import Path
import torch
import flash_attention
place = Path(flash_attention.__file__)
assert Path(sys.prefix) in place.parents, place
info = flash_attention.library_info()
assert (info.kernel_set, info.n_kernels) == ("none", 0)
assert flash_attention.available_kernels() == []
maps = Path("/proc/self/maps").read_text()
assert str(place.parent / "_C.") in maps and "libcuda.so" not in maps
q, k, v = (torch.randn(1, 40, 2, 64).half() for _ in "qkv")
o = flash_attention.flash_attn_func(q, k, v, causal=True)
q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
assert (o.transpose(1, 2).float() - expected).abs().max() < 2e-3
print(flash_attention.__version__)
"""
