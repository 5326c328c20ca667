"""Trains a small GPT on generated text twice, from the same start and on the same batches: with
flash_attn_func, forward and backward, and with PyTorch's attention. The losses go the same way.

    python examples/train_tiny_gpt.py [--picture losses.png]    on the GPU, 300 steps
    python examples/train_tiny_gpt.py --device cpu    in the emulator, a tiny model, a few steps
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

import flash_attention

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
HEAD = 64  # columns of a head


def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    o = flash_attention.flash_attn_func(q, k, v, causal=True)
    assert isinstance(o, torch.Tensor)
    return o


def pytorchs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


@dataclass(frozen=True)
class Size:
    width: int
    n_layers: int
    seq: int
    batch: int
    steps: int


SIZES = {"cuda": Size(256, 4, 256, 16, 300), "cpu": Size(64, 2, 40, 2, 6)}


class Block(nn.Module):
    """Attention in bf16, all else in fp32."""

    def __init__(self, width: int, attend: Attention) -> None:
        super().__init__()
        self.attend = attend
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.before(x)).unflatten(-1, (3, -1, HEAD)).bfloat16()
        x = x + self.out(self.attend(*qkv.unbind(2)).flatten(2).float())
        found: torch.Tensor = x + self.mlp(self.between(x))
        return found


class TinyGPT(nn.Module):
    def __init__(self, size: Size, n_letters: int, attend: Attention) -> None:
        super().__init__()
        self.letters = nn.Embedding(n_letters, size.width)
        self.places = nn.Embedding(size.seq, size.width)
        self.blocks = nn.Sequential(*(Block(size.width, attend) for _ in range(size.n_layers)))
        self.end = nn.Sequential(nn.LayerNorm(size.width), nn.Linear(size.width, n_letters))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        found: torch.Tensor = self.end(self.blocks(x))
        return found


def text_of(n_sentences: int) -> str:
    """Sentences that a grammar makes: what comes next can be learned, but for the choices."""
    generator = torch.Generator().manual_seed(0)
    nouns, verbs = ["cat", "house", "river", "teacher"], ["sees", "finds", "loves"]
    adjectives = ["small", "red", "old"]

    def choose(words: list[str]) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    def thing() -> str:
        return f"the {choose(adjectives)} {choose(nouns)}"

    return "".join(f"{thing()} {choose(verbs)} {thing()}. " for _ in range(n_sentences))


def losses(attend: Attention, device: str) -> list[float]:
    """Of every step."""
    size, text = SIZES[device], text_of(2000)
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text])
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    model = TinyGPT(size, len(letters), attend).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for _ in range(size.steps):
        starts = torch.randint(len(data) - size.seq, (size.batch, 1), generator=generator)
        batch = data[starts + torch.arange(size.seq + 1)].to(device)
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        found.append(loss.item())
    return found


def draw(curves: dict[str, list[float]], path: str) -> None:
    from matplotlib import pyplot  # only here: nothing else needs it

    for name, values in curves.items():
        pyplot.plot(values, label=name, linewidth=1)
    pyplot.xlabel("step")
    pyplot.ylabel("loss")
    pyplot.legend()
    pyplot.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--picture", help="where to draw the losses (needs matplotlib)")
    args = parser.parse_args()
    curves = {
        "flash_attn_func": losses(ours, args.device),
        "PyTorch's attention": losses(pytorchs, args.device),
    }
    pairs = list(zip(*curves.values(), strict=True))
    print("step " + " ".join(f"{name:>20}" for name in curves))
    for step in range(0, len(pairs), max(1, len(pairs) // 10)):
        print(f"{step:4} " + " ".join(f"{loss:20.4f}" for loss in pairs[step]))
    print(f"largest difference: {max(abs(a - b) for a, b in pairs):.4f}")
    if args.picture:
        draw(curves, args.picture)


if __name__ == "__main__":
    main()
