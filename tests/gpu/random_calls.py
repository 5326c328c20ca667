"""Random calls of the public functions, each compared with fp64, for as many seconds as are given.

    python -m tests.gpu.random_calls SECONDS [--kinds dense,packed,...] [--seed NUMBER]
        [--number NUMBER] [--device cpu]

A problem is drawn from the seed, its kind and its number: what fails is printed with them, and can
be run again alone. Prints how many of each kind there were, and the worst row in units of what is
allowed. Exit codes: 0 all are right, 1 some are not, 2 usage, 4 without a GPU. `--device cpu`
draws small problems, for the emulator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

import flash_attention
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import bitwise_equal
from tests.serving.latent import LatentBatch
from tests.serving.packed import Packed
from tests.serving.problems import Batch, poisoned_memory, same_bits
from tests.serving.test_append import Rotary, append

from .random_problems import HEADS, Draw, batch_error, gradient_error, gradient_margin, row_error
from .random_run import Kinds, run

PAGES = (1, 2, 8, 16, 24, 64, 128, 256)


def dense(draw: Draw) -> float:
    """flash_attn_func, with gradients of some of its inputs."""
    r = draw.random
    (heads, kv_heads), d, dtype = draw.heads(), draw.d_head(), draw.dtype()
    rule = draw.rule() if r.random() < 0.4 else ServeRule(causal=r.random() < 0.5)
    batch, n_q, n_k = r.choice((1, 1, 2, 3)), draw.length(1), draw.length(1)
    if r.random() < 0.5:
        n_k = n_q
    wanted = [] if rule.softcap else [name for name in "qkv" if r.random() < 0.5]
    sinks = None if wanted else draw.sinks(heads)
    same = r.random() < 0.3
    draw.tell(batch, n_q, n_k, heads, kv_heads, d, dtype, rule, wanted, sinks is not None, same)
    q = draw.rows(dtype, batch, n_q, heads, d)
    k, v = (draw.rows(dtype, batch, n_k, kv_heads, d) for _ in range(2))
    leaves = {n: x.detach().requires_grad_(n in wanted) for n, x in (("q", q), ("k", k), ("v", v))}
    call: Any = flash_attention.flash_attn_func
    o, lse, _ = call(
        *leaves.values(), causal=rule.causal, window_size=rule.window, softcap=rule.softcap,
        softmax_scale=rule.scale, deterministic=same, return_attn_probs=True, s_aux=sinks,
    )  # fmt: skip
    rows = zip(o.detach(), lse.detach(), q, k, v, strict=True)
    worst = max(row_error(*tensors, rule, sinks=sinks) for tensors in rows)
    if wanted:
        d_o = draw.rows(dtype, *o.shape)
        inputs = [leaves[name] for name in wanted]
        found = torch.autograd.grad(o, inputs, d_o, retain_graph=same)
        reference = attention_gradients(q, k, v, d_o, served=rule)
        named = {f"d_{name}": x for name, x in zip(wanted, found, strict=True)}
        worst = max(worst, gradient_error(reference, named, d))
        if same:
            again = torch.autograd.grad(o, inputs, d_o)
            assert all(map(bitwise_equal, found, again)), "other bits"
    return worst


def batch_of(draw: Draw, queries: list[int], keys: list[int], leftpad: bool = False) -> Batch:
    (heads, kv_heads), d, rule, dtype = draw.heads(32), draw.d_head(), draw.rule(), draw.dtype()
    d_v = draw.random.choice((0, 0, 0, 64)) if d > 64 else 0
    pads = [draw.random.randrange(n + 1) for n in keys] if leftpad else []
    draw.tell(queries, keys, rule, heads, kv_heads, d, d_v, dtype, pads)
    seed = draw.random.randrange(2**31)
    batch = Batch(
        queries, keys, rule, heads, kv_heads, d, d_v, dtype, pads, seed=seed, device=draw.device
    )
    batch.sinks = draw.sinks(heads)
    return batch


def packed(draw: Draw) -> float:
    """flash_attn_varlen_func, with packed keys or pages."""
    n = draw.random.choice((1, 2, 3, 5, 9, 40))
    batch = batch_of(draw, draw.lengths(n), draw.lengths(n))
    page, splits = draw.random.choice((0, 0, *PAGES)), draw.random.choice((0, 0, 1, 3, 8))
    draw.tell("page", page, "splits", splits, "sinks", batch.sinks is not None)
    call = partial(batch.packed_over_pages, page) if page else batch.packed
    found = call(num_splits=splits)
    assert same_bits(found, call(num_splits=splits)), "other bits"
    return batch_error(batch, found)


def cached(draw: Draw) -> float:
    """flash_attn_with_kvcache, contiguous or with pages."""
    r = draw.random
    n, n_q = r.choice((1, 2, 5, 17, 64)), r.choice((1, 1, 1, 2, 4, 9, 130))
    keys = draw.lengths(n)
    batch = batch_of(draw, [n_q] * n, keys, leftpad=r.random() < 0.3)
    page, splits = r.choice((0, *PAGES)), r.choice((0, 0, 1, 2, 7, 32))
    draw.tell("page", page, "splits", splits, "sinks", batch.sinks is not None)
    capacity = max(keys) + 1 + r.randrange(5)
    call = partial(batch.paged, page) if page else partial(batch.cached, capacity)
    return batch_error(batch, call(num_splits=splits))


def appended(draw: Draw) -> float:
    """New keys that are written to a cache, and rotated."""
    r = draw.random
    n, is_packed = r.choice((1, 2, 4)), r.random() < 0.4
    new = [r.randrange(9) for _ in range(n)] if is_packed else [r.randrange(1, 9)] * n
    queries = [r.randrange(7) for _ in range(n)] if is_packed else [r.randrange(1, 7)] * n
    keys = [added + r.randrange(100) for added in new]
    (heads, kv_heads), d, dtype = draw.heads(), r.choice(HEADS), draw.dtype()
    rule = ServeRule(causal=True, window=r.choice(((-1, -1), (r.randrange(60), -1))))
    rotary = Rotary.draw(r.randrange(1, d // 16 + 1) * 16, r.random() < 0.5, dtype)
    page, rotates = r.choice((0, 1, 8, 16, 32)), r.random() < 0.6
    draw.tell(queries, keys, new, rule, heads, kv_heads, d, dtype, "page", page, is_packed)
    draw.tell("rotary", rotary.dim * rotates, rotary.interleaved)
    batch = Batch(queries, keys, rule, heads, kv_heads, d, dtype=dtype, device=draw.device)
    for i, added in enumerate(new):  # not NaN, seen or not: all of it is written
        for x in (batch.k[i], batch.v[i]):
            x[keys[i] - added :] = torch.randn(added, kv_heads, d, device=draw.device).to(dtype)
    append(batch, new, page=page, rotary=rotary if rotates else None, packed=is_packed)
    return 0.0  # by the row rule


def latent(draw: Draw) -> float:
    """A latent cache."""
    r = draw.random
    n, n_q = r.choice((1, 2, 5, 40)), r.choice((1, 1, 2, 3))
    heads = r.choice((1, 8, 16, 48, 100, 128))
    keys, page = draw.lengths(n), r.choice((1, 8, 16, 24, 64, 128))
    rule, splits = ServeRule(causal=r.random() < 0.5), r.choice((0, 0, 1, 3))
    dtype, separate, seed = draw.dtype(), r.random() < 0.3, r.randrange(2**31)
    draw.tell(n_q, keys, heads, "page", page, rule, "splits", splits, dtype, separate)
    batch = LatentBatch(
        [n_q] * n, keys, rule, heads, dtype=dtype, seed=seed, device=draw.device, separate=separate
    )
    call = r.choice((batch.packed, batch.paged))
    return batch_error(batch, call(page, num_splits=splits))


def gradients(draw: Draw) -> float:
    """Gradients of packed sequences."""
    r = draw.random
    n = r.choice((1, 2, 3, 7))
    queries = draw.lengths(n)
    keys = queries if r.random() < 0.5 else draw.lengths(n)
    (heads, kv_heads), rule, dtype = draw.heads(), draw.rule(), draw.dtype()
    d = draw.d_head()
    with_sinks, with_d_lse, same = (r.random() < 0.3 for _ in range(3))
    draw.tell(queries, keys, rule, heads, kv_heads, d, dtype, with_sinks, with_d_lse, same)
    Packed(
        queries, keys, rule, heads, kv_heads, d, dtype=dtype, with_sinks=with_sinks,
        with_d_lse=with_d_lse, device=draw.device,
    ).check(margin=gradient_margin(d), deterministic=same)  # fmt: skip
    return 0.0


KINDS = Kinds(
    {
        "dense": dense, "packed": packed, "cached": cached, "appended": appended,
        "latent": latent, "gradients": gradients,
    },
    longest={"cuda": 4000, "cpu": 150},
    around=poisoned_memory,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    return run(KINDS, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
