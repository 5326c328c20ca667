"""Code that is written for the flash-attn package runs with another import.

python examples/flash_attn_names.py [--device cpu]
"""

import argparse

import torch

import flash_attention.compat as flash_attn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    seq = 4096 if device == "cuda" else 48
    torch.manual_seed(0)
    qkv = torch.randn(1, seq, 3, 2, 64, device=device, dtype=torch.float16, requires_grad=True)
    q, k, v = qkv.unbind(2)
    out = flash_attn.flash_attn_func(q, k, v, causal=True)
    packed = flash_attn.flash_attn_qkvpacked_func(qkv, causal=True)
    assert isinstance(out, torch.Tensor) and isinstance(packed, torch.Tensor)
    torch.autograd.backward([packed.float().square().sum()])
    same = torch.equal(out, packed) and qkv.grad is not None
    print(f"flash-attn's interface {flash_attn.__version__}; packed and separate agree: {same}")


if __name__ == "__main__":
    main()
