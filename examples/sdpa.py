"""A program that calls torch.nn.functional.scaled_dot_product_attention gets these kernels by one
line, `flash_attention.enable()`.

    python examples/sdpa.py             on the GPU, with the speed-up
    python examples/sdpa.py --device cpu    in the emulator, a tiny layer
"""

import argparse
import time

import torch

import flash_attention


class Layer(torch.nn.Module):
    """Self-attention as many models have it."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: torch.Tensor = self.out(o.transpose(1, 2).flatten(2))
        return found


def milliseconds(layer: Layer, x: torch.Tensor, calls: int = 20) -> float:
    layer(x)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        layer(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / calls * 1e3


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    width, seq = (2048, 4096) if device == "cuda" else (128, 48)
    torch.manual_seed(0)
    layer = Layer(width, width // 64).to(device, torch.float16)
    x = torch.randn(2, seq, width, device=device, dtype=torch.float16)
    expected = layer(x)
    before = milliseconds(layer, x) if device == "cuda" else 0.0
    flash_attention.enable(emulator=device == "cpu")
    difference = (layer(x) - expected).abs().max().item()
    print(f"largest difference from PyTorch's attention: {difference:.5f}")
    if device == "cuda":
        after = milliseconds(layer, x)
        print(f"{before:.3f} ms with PyTorch's attention, {after:.3f} ms: x {before / after:.2f}")
    flash_attention.disable()


if __name__ == "__main__":
    main()
