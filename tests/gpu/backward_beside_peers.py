"""Gradients through `flash_attn_func` beside those of PyTorch's FlashAttention-2 and cuDNN, and of
FlashAttention-4 where it is installed, on the GPU of this machine: times, contenders in turns; or
errors of the gradients' rows on the same tensors; or what a call takes when it is repeated for
a second and a half (sustained), with its energy.

    python -m tests.gpu.backward_beside_peers SECONDS [times | errors | sustained]
        [--d_heads 64,128] [--seq_lens 512,2048,8192] [--heads 16/16] [--dtypes fp16]
        [--masks full,causal] [--seed NUMBER]

Times are TFLOP/s of 2.5 (with the forward pass: 3.5) x forward's FLOP, 16,384 tokens; `exact` is
`deterministic=True`, and ratios are the best peer's time by ours. FlashAttention-4 compiles for
each head dimension, mask and dtype first, 10 to 20 s. After so many seconds nothing further is
begun, what was left out is counted, and the exit code is 3. It is 4 without a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.peers import Attention
from flash_lab.accuracy.measure import row_errors
from flash_lab.bench.distributions import DISTRIBUTIONS, draw
from flash_lab.bench.energy import EnergyMeter, cuda_mark
from flash_lab.bench.measure import SkippedError
from flash_lab.bench.providers import find_reference

from .backward_times import TOKENS, milliseconds

PEERS = ("fa2", "cudnn", "fa4")
SUSTAINED_SECONDS = 1.5
NAMES = ("d_q", "d_k", "d_v")
MASKS = ("full", "causal")
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Problem:
    seq_len: int
    dtype: str
    mask: str
    d_head: int
    heads: int
    kv_heads: int

    def __str__(self) -> str:
        heads = f"{self.heads}/{self.kv_heads}"
        return f"d{self.d_head} {self.mask} {heads} {self.dtype} {self.seq_len}"

    @property
    def causal(self) -> bool:
        return self.mask == "causal"

    @property
    def batch(self) -> int:
        return max(1, TOKENS // self.seq_len)

    def shapes(self, batch: int) -> tuple[Any, Any]:
        """Of queries, and of keys and values."""
        size = batch, self.seq_len
        return (*size, self.heads, self.d_head), (*size, self.kv_heads, self.d_head)

    def tera_flop(self) -> float:
        """Of a backward pass."""
        scores = self.batch * self.heads * self.seq_len**2 / (2 if self.causal else 1)
        return 2.5 * 4 * scores * self.d_head / 1e12


@dataclass(frozen=True)
class Contender:
    """A forward pass that records what its backward pass needs."""

    attend: Callable[[Tensors], torch.Tensor]
    leaves: Tensors
    d_o: torch.Tensor

    def gradients(self, o: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(o, self.leaves, self.d_o, retain_graph=True)

    def both(self) -> object:
        return torch.autograd.grad(self.attend(self.leaves), self.leaves, self.d_o)


def contenders(problem: Problem, tensors: Tensors, d_o: torch.Tensor) -> dict[str, Contender]:
    """By name; a peer that is missing or refuses the problem is named."""

    def ours(leaves: Tensors, deterministic: bool) -> torch.Tensor:
        q, k, v = leaves
        o = flash_attention.flash_attn_func(
            q, k, v, causal=problem.causal, deterministic=deterministic
        )
        assert isinstance(o, torch.Tensor)
        return o

    def theirs(leaves: Tensors, function: Attention) -> torch.Tensor:
        q, k, v = leaves
        return function(q, k, v)

    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    found = {
        "ours": Contender(partial(ours, deterministic=False), leaves, d_o),
        "exact": Contender(partial(ours, deterministic=True), leaves, d_o),
    }
    for peer in PEERS:
        try:
            function = find_reference(peer, problem.causal)[2]
            contender = Contender(partial(theirs, function=function), leaves, d_o)
            contender.both()
            torch.cuda.synchronize()
        except (SkippedError, RuntimeError) as error:
            print(f"{problem}: {peer} left out:", (str(error).splitlines() or ["?"])[0][:90])
        else:
            found[peer] = contender
    return found


def table(times: dict[str, float], tera_flop: float) -> str:
    best = min((ms for name, ms in times.items() if name in PEERS), default=float("nan"))
    cells = " ".join(f"{name} {tera_flop / ms * 1e3:.0f}" for name, ms in times.items())
    return f"{cells} | {best / times['ours']:.3f} exact {best / times['exact']:.3f}"


def print_times(problem: Problem, generator: torch.Generator) -> None:
    shape_q, shape_k = problem.shapes(problem.batch)
    q, k, v = draw("randn", shape_q, shape_k, TYPES[problem.dtype], generator)
    found = contenders(problem, [q, k, v], torch.randn_like(q))
    recorded = {name: c.attend(c.leaves) for name, c in found.items()}
    backward = milliseconds({n: partial(c.gradients, recorded[n]) for n, c in found.items()})
    both = milliseconds({name: c.both for name, c in found.items()})
    flop = problem.tera_flop()
    print(f"{problem}: {table(backward, flop)}; both {table(both, 1.4 * flop)}", flush=True)


def print_errors(problem: Problem, generator: torch.Generator) -> None:
    """Worst and mean row, the gradients' own rule, and ours by the better peer's."""
    dtype = TYPES[problem.dtype]
    eps = DType.from_torch_dtype(dtype).eps
    for distribution in DISTRIBUTIONS:
        q, k, v = draw(distribution, *problem.shapes(1), dtype, generator)
        d_o = torch.randn(q.shape, device="cuda", generator=generator).to(dtype)
        reference = attention_gradients(q, k, v, d_o, causal=problem.causal)
        errors: dict[str, dict[str, tuple[float, float, float]]] = {name: {} for name in NAMES}
        for who, contender in contenders(problem, [q, k, v], d_o).items():
            got = dict(
                zip(NAMES, contender.gradients(contender.attend(contender.leaves)), strict=True)
            )
            rule = reference.worst_rows(got)
            for n in NAMES:
                # The first causal query's gradient is 0: a relative error says nothing there.
                error = row_errors(got[n][:, 1:], reference.gradients[n][:, 1:], eps)
                errors[n][who] = error.worst, error.mean, rule[n]
        for n, of_all in errors.items():
            peers = [of_all[p] for p in PEERS if p in of_all]
            least = [min(e[i] for e in peers) if peers else float("nan") for i in (0, 1)]
            by_peer = [of_all["ours"][i] / least[i] for i in (0, 1)]
            cells = " ".join(f"{who} {w:.2f}/{m:.3f}/{r:.2f}" for who, (w, m, r) in of_all.items())
            print(f"{problem} {distribution} {n}: {cells} | {by_peer[0]:.3f} {by_peer[1]:.3f}")
        sys.stdout.flush()


def print_sustained(problem: Problem, generator: torch.Generator) -> None:
    q, k, v = draw("randn", *problem.shapes(problem.batch), TYPES[problem.dtype], generator)
    meter, cells = EnergyMeter("", cuda_mark), []
    for name, contender in contenders(problem, [q, k, v], torch.randn_like(q)).items():
        call = partial(contender.gradients, contender.attend(contender.leaves))
        energy = meter.per_call(call, milliseconds({name: call}, rounds=1)[name], SUSTAINED_SECONDS)
        speed = problem.tera_flop() * energy.n_calls / energy.seconds
        cells.append(f"{name} {speed:.0f} {energy.joules:.2f} J {energy.watts:.0f} W")
    print(f"{problem} sustained: {'; '.join(cells)}", flush=True)


SHOW = {"times": print_times, "errors": print_errors, "sustained": print_sustained}


def problems(options: argparse.Namespace) -> Iterator[Problem]:
    """All lengths of what FlashAttention-4 compiles for, before the next."""
    for d_head, mask, heads in itertools.product(options.d_heads, options.masks, options.heads):
        n_heads, kv_heads = map(int, heads.split("/"))
        for dtype, seq_len in itertools.product(options.dtypes, options.seq_lens):
            yield Problem(int(seq_len), dtype, mask, int(d_head), n_heads, kv_heads)


def words(text: str, allowed: Collection[str] = ()) -> list[str]:
    """What stands between commas, each of them one of those allowed, if any are named."""
    found = text.split(",")
    if unknown := [word for word in found if allowed and word not in allowed]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: allowed are {', '.join(allowed)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("what", nargs="?", choices=SHOW, default="times")
    parser.add_argument("--d_heads", type=words, default=["128", "64"])
    parser.add_argument("--seq_lens", type=words, default=["512", "2048", "8192"])
    parser.add_argument("--heads", type=words, default=["16/16"], help="queries'/keys', by commas")
    parser.add_argument("--dtypes", type=partial(words, allowed=TYPES), default=["fp16"])
    parser.add_argument("--masks", type=partial(words, allowed=MASKS), default=[*MASKS])
    parser.add_argument("--seed", type=int, default=torch.seed() % 2**31)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU is here: nothing was measured", file=sys.stderr)
        return 4
    end, todo = time.monotonic() + options.seconds, list(problems(options))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, seed {options.seed}")
    generator = torch.Generator("cuda").manual_seed(options.seed)
    for number, problem in enumerate(todo):
        if time.monotonic() > end:
            print(f"{len(todo) - number} of {len(todo)} problems left out: the time is over")
            return 3
        SHOW[options.what](problem, generator)
    return 0


if __name__ == "__main__":
    sys.exit(main())
