"""Every kernel that serves, with everything that a call can ask for at once; groups and blocks."""

from __future__ import annotations

import pytest
import torch

import flash_attention.emulated
from flash_attention.serving import launch, splits
from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.check.tolerance import ROW_FACTOR
from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.serve_config import ServeKernelConfig, ServeSizes
from tests.serving.problems import EVERYTHING, Batch, each

CONFIGS = [config for config in get_kernel_configs("serve") if not config.GRADIENTS]


@each(CONFIGS)
@pytest.mark.parametrize("num_splits", [0, 3])
def test_every_kernel(
    monkeypatch: pytest.MonkeyPatch, config: KernelConfig, num_splits: int
) -> None:
    """With the rows that it is for, and fixed splits where it has them."""
    assert isinstance(config, ServeKernelConfig)
    monkeypatch.setattr(launch, "choose", lambda call: config)
    if config.shares_keys():
        monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 1 + 3 * num_splits)
    queries = [1, 5, 1] if config.shares_keys() else [70, 0, 19]
    batch = Batch(
        queries, [200, 65, 19], EVERYTHING, heads=6, d=config.d_head,
        dtype=config.dtype.to_torch_dtype(), leftpad=[160, 0, 0], sinks=torch.randn(6),
    )  # fmt: skip
    batch.check(batch.packed(num_splits=0 if config.shares_keys() else num_splits))


@pytest.mark.parametrize("group", [1, 2, 3, 5, 8, 12, 16, 71])
def test_groups(group: int) -> None:
    """Rows of a tile end within a query's heads, or hold several queries."""
    for queries in ([1, 1], [3, 26]):
        batch = Batch(queries, [70, 26], ServeRule(causal=True), heads=2 * group)
        batch.check(batch.packed())


@pytest.mark.parametrize("keys", [0, 1, 15, 16, 63, 64, 65, 128, 129])
def test_lengths_around_blocks(keys: int) -> None:
    for queries in (1, 65):
        batch = Batch([queries], [keys], ServeRule(), heads=2)
        batch.check(batch.packed())


@pytest.mark.parametrize("num_splits", [1, 2, 128])
def test_a_sink_counts_once(num_splits: int) -> None:
    batch = Batch([1, 2], [500, 9], heads=8, sinks=torch.full((8,), 4.0))
    batch.check(batch.packed(num_splits=num_splits))


def test_the_reference_is_the_rule() -> None:
    """Key by key, and the sums by hand."""
    rule = ServeRule(window=(2, 1), softcap=2.0, scale=0.5)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, h, 8, generator=generator) for n, h in ((4, 2), (6, 1), (6, 1)))
    sinks = torch.tensor([0.3, -1.0])
    o, lse = attend_sequence(q, k, v, rule, leftpad=1, sinks=sinks)
    for i in range(4):
        at = i + 2
        keys = [j for j in range(6) if max(1, at - 2) <= j < min(6, at + 2)]
        for head in range(2):
            scores = 2 * torch.tanh(0.5 * (k[keys, 0].double() @ q[i, head].double()) / 2)
            total = scores.exp().sum() + sinks[head].double().exp()
            torch.testing.assert_close(lse[head, i], total.log())
            expected = (scores.exp()[:, None] * v[keys, 0].double()).sum(dim=0) / total
            torch.testing.assert_close(o[i, head], expected)


@pytest.mark.parametrize("d", [8, 16, 24])
def test_small_head_dimensions(d: int) -> None:
    """Where values cancel, as those of a row of eight elements may, an error is large beside the
    output; beside the weighted values it is within the row rule."""
    batch = Batch([400], [100], d=d)
    ((o, _),) = batch.packed()
    expected, _ = batch.reference(0)
    batch.v = [v.abs() for v in batch.v]
    weighted, _ = batch.reference(0)
    error = (o.double() - expected).norm(dim=-1) / weighted.norm(dim=-1)
    assert error.max() <= ROW_FACTOR * DType.FP16.eps


@pytest.mark.parametrize("keys", [1, 64, 300, 700, 1300, 3000, 5000])
def test_every_split_has_keys(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Of a prompt, where the call chooses how many: of the longest sequence that there can be."""
    chosen: list[ServeSizes] = []
    monkeypatch.setattr(
        flash_attention.emulated,
        "launch_serving",
        lambda config, args, sizes, *_: chosen.append(sizes),
    )
    batch = Batch([17], [keys], heads=1, kv_heads=1)
    batch.cached(keys)
    (sizes,) = chosen
    blocks = -(-keys // 64)
    share = -(-blocks // sizes.n_splits)
    assert (sizes.n_splits - 1) * share < blocks
    assert sizes.n_splits > 1 or blocks <= 4
