"""A plugin of pytest for flash-attn's own tests: `flash_attn` means these kernels, a few cases are
drawn of each test, and those that docs/support.md refuses must be refused, in its words."""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Generator, Mapping
from types import ModuleType
from typing import Any

import pytest
import torch

from flash_attention import compat

ON_GPU = torch.cuda.is_available()
# The emulator's: products of a call's queries and keys, and head dimensions.
MOST_SCORES_ON_CPU, LARGEST_HEAD_ON_CPU = 128 * 256, 80

Parameters = Mapping[str, Any]


def refusals(of: Parameters) -> list[str]:
    """Patterns of messages: a call with such parameters must be refused in one of these words."""
    found = []
    if of.get("dropout_p"):
        found.append("dropout_p is given: it is not supported")
    if of.get("alibi"):
        found.append("alibi_slopes is given: it is not supported")
    if of.get("d", 0) > 256:
        found.append(f"no kernel (computes gradients of|takes) .* d {of['d']} on ")
    if of.get("d", 0) % 8 and "new_kv" in of:
        found.append("of a cache, which is never copied, expected a multiple of 8")
    if of.get("paged_kv_block_size") and "new_kv" not in of:
        found.append("block_table is given, and an input requires a gradient")
    return found


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    seqlen_offsets: torch.Tensor | int = 0,
) -> torch.Tensor:
    """What flash_attn.layers.rotary has under this name, for (batch, seqlen, heads, d): the first
    elements of row i of a sequence are turned by the angles of its offset + i."""
    half = cos.shape[-1]
    offsets = torch.as_tensor(seqlen_offsets, device=x.device).expand(x.shape[0])
    places = offsets[:, None] + torch.arange(x.shape[1], device=x.device)
    c, s = (table[places.long()][:, :, None].float() for table in (cos, sin))
    turned, rest = x[..., : 2 * half].float(), x[..., 2 * half :]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        pair = torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        pair = torch.cat([a * c - b * s, a * s + b * c], dim=-1)
    return torch.cat([pair.to(x.dtype), rest], dim=-1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=0, help="of each test; 0: all")


def pytest_configure() -> None:
    compat.install()
    rotary: Any = ModuleType("flash_attn.layers.rotary")
    rotary.apply_rotary_emb = apply_rotary_emb
    sys.modules["flash_attn.layers.rotary"] = rotary
    vars(compat)["_get_block_size_n"] = None  # for dropout, which is refused
    if not ON_GPU:
        torch.cuda.get_device_capability = lambda *_: (9, 0)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All cases are hundreds of thousands. The drawn ones are the same in every run."""
    count = metafunc.config.getoption("--cases")
    markers = metafunc.definition.own_markers
    axes = [marker for marker in markers if marker.name == "parametrize"]
    if not count or not axes:
        return
    markers[:] = [marker for marker in markers if marker.name != "parametrize"]
    names = [name.strip() for axis in axes for name in axis.args[0].split(",")]
    draw = random.Random(metafunc.function.__name__)
    cases: dict[str, tuple[Any, ...]] = {}
    for _ in range(100 * count):
        case: tuple[Any, ...] = ()
        for axis in axes:
            value = draw.choice(axis.args[1])
            case += value if "," in axis.args[0] else (value,)
        if ON_GPU or _fits_the_emulator(dict(zip(names, case, strict=True))):
            cases[repr(case)] = case
        if len(cases) == min(count, math.prod(len(axis.args[1]) for axis in axes)):
            break
    metafunc.parametrize(names, list(cases.values()))


def _fits_the_emulator(of: Parameters) -> bool:
    queries = of.get("seqlen_q", of.get("seqlen", 0))
    scores = queries * of.get("seqlen_k", queries)
    refused = bool(of.get("dropout_p") or of.get("alibi"))
    return scores <= MOST_SCORES_ON_CPU and of["d"] <= LARGEST_HEAD_ON_CPU and not refused


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, None, None]:
    patterns = refusals(item.callspec.params)
    if not patterns:
        return (yield)
    try:
        yield
    except ValueError as error:
        if not re.search("|".join(patterns), str(error)):
            raise
        pytest.xfail(f"refused: {error}")
    pytest.fail(f"nothing was refused: expected one of {patterns}")
