"""A model of Hugging Face's transformers with these kernels: one import, one name.

python examples/transformers_model.py             on the GPU, with the speed-up
python examples/transformers_model.py --device cpu    in the emulator, a tiny model
"""

import argparse
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import flash_attention.transformers


def milliseconds(model: Any, tokens: torch.Tensor, calls: int = 10) -> float:
    model(tokens)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        model(tokens)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / calls * 1e3


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    size, layers, seq = (2048, 8, 4096) if device == "cuda" else (128, 2, 16)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=size, intermediate_size=2 * size, num_hidden_layers=layers, vocab_size=256,
        num_attention_heads=size // 64, num_key_value_heads=size // 128, head_dim=64,
        max_position_embeddings=2 * seq,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    model.to(device, torch.float16).eval()
    tokens = torch.randint(0, 256, (1, seq), device=device)
    prompt = tokens[:, :12]

    model.set_attn_implementation("eager")
    expected = model.generate(prompt, max_new_tokens=3, do_sample=False)
    model.set_attn_implementation(flash_attention.transformers.NAME)
    found = model.generate(prompt, max_new_tokens=3, do_sample=False)
    print(f"tokens equal to those of eager attention: {torch.equal(found, expected)}")
    if device == "cuda":
        ours = milliseconds(model, tokens)
        model.set_attn_implementation("sdpa")
        theirs = milliseconds(model, tokens)
        print(f"{theirs:.2f} ms with sdpa, {ours:.2f} ms: x {theirs / ours:.2f}")


if __name__ == "__main__":
    main()
