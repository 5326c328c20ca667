"""The gradients of every configuration against fp64: odd lengths, masks, groups of heads, strides,
extreme values. On CPU tensors, so the emulator's checks of memory and races are on."""

from __future__ import annotations

import itertools

import pytest
import torch

from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernel_configs import DType
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from tests.backward.problems import CONFIGS, NAMES, SMALLS, WIDE, Problem

# Of those that differ in the dtype alone the one that other tests compile, too, and of each family
# one of the other dtype; the rest are slow tests.
_OTHERS = {config.FAMILY: config for config in CONFIGS if config.dtype is DType.BF16}
SOME = [c for c in CONFIGS if c.dtype is DType.FP16 or c is _OTHERS[c.FAMILY]]
EVERY = pytest.mark.parametrize(
    "config",
    [pytest.param(c, marks=() if c in SOME else pytest.mark.slow, id=str(c)) for c in CONFIGS],
)


# Fused, with P and dS one after the other.
SPLIT = [c for c in SOME if (c.FAMILY, c.d_head) == ("sm90_bwd_fused", 128)]
OF_80 = [c for c in SOME if c.values().get("keys_columns") == 80]


@pytest.fixture(params=[*SMALLS, WIDE], ids=lambda config: f"{config.FAMILY}-{config.d_head}")
def small(request: pytest.FixtureRequest) -> BackwardKernelConfig:
    """One configuration of each family, and one that sums dV and dK in turn."""
    config: BackwardKernelConfig = request.param
    return config


@EVERY
def test_a_whole_and_an_odd_problem(config: BackwardKernelConfig) -> None:
    queries, keys = config.blocks()
    Problem(config, 2 * queries, 2 * keys, heads=1).check()
    Problem(config, queries + 3, keys + 5, heads=2, causal=True, with_d_lse=True).check()


@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k"), [(1, 1), (3, 200), (200, 3), (65, 129), (130, 64)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(small: BackwardKernelConfig, seqlen_q: int, seqlen_k: int, causal: bool) -> None:
    found = Problem(small, seqlen_q, seqlen_k, causal=causal).check()
    if causal and seqlen_q > seqlen_k:  # these queries see no key
        assert not found["d_q"][:, : seqlen_q - seqlen_k].any()


@pytest.mark.parametrize("config", SPLIT, ids=str)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(3, 200), (130, 390)])
def test_every_first_block_of_queries(
    config: BackwardKernelConfig, seqlen_q: int, seqlen_k: int
) -> None:
    """Without a mask each block of keys begins with other queries, and comes to the first ones of
    a head behind its last, also where there are fewer blocks of queries than of keys, or one."""
    Problem(config, seqlen_q, seqlen_k, heads=4, kv_heads=2).check()
    Problem(config, seqlen_q, seqlen_k, heads=1).check()


IN_ORDER = [
    c for c in SOME if isinstance(c, FusedBackwardKernelConfig) and c.add_by is AddBy.IN_ORDER
]


PAIRS_IN_ORDER = [
    c for c in SOME if isinstance(c, ClusterBackwardKernelConfig) and c.is_deterministic()
]


@pytest.mark.parametrize("config", PAIRS_IN_ORDER, ids=str)
def test_more_pairs_than_begin_at_once(config: BackwardKernelConfig) -> None:
    """With a mask the first half of a head's pairs come backwards then."""
    problem = Problem(config, 70, 8 * 128 - 3, heads=17, kv_heads=17, causal=True)
    found, again = problem.check(), problem.run()
    assert all(bitwise_equal(found[name], again[name]) for name in found)


@pytest.mark.parametrize("config", IN_ORDER, ids=str)
def test_heads_that_share_many_keys(config: BackwardKernelConfig) -> None:
    """With a mask their blocks of keys come in another order than those of five or fewer, and
    those whose heads are shared out in the order of equal heads, or of keys that begin at once."""
    assert isinstance(config, FusedBackwardKernelConfig)
    for queries, keys, heads, kv_heads, splits in (
        (70, 700, 44, 22, 1), (150, 700, 6, 2, 3), (700, 700, 2, 1, 2), (70, 700, 42, 21, 2),
    ):  # fmt: skip
        sizes = Sizes(1, queries, keys, heads, kv_heads, causal=True)
        assert config.head_splits(sizes) == splits
        Problem(config, queries, keys, heads=heads, kv_heads=kv_heads, causal=True).check()
    Problem(config, 150, 700, heads=6, kv_heads=2, causal=True, with_d_lse=True).check()


STAGED = [
    c for c in SOME if isinstance(c, FusedBackwardKernelConfig) and c.add_by is not AddBy.REGISTERS
]


@pytest.mark.parametrize("config", STAGED, ids=str)
@pytest.mark.parametrize(
    ("seqlen_k", "heads", "splits"),
    [
        (130, 6, 6),
        (19 * 128 + 5, 8, 4),
        pytest.param(43 * 128, 3, 1, marks=pytest.mark.slow),
    ],
)
def test_heads_that_share_few_keys(
    config: FusedBackwardKernelConfig, seqlen_k: int, heads: int, splits: int
) -> None:
    """Each thread block has one of them, some, or all."""
    assert config.head_splits(Sizes(1, 64, seqlen_k, heads, 1)) == splits
    problem = Problem(config, 64, seqlen_k, heads=heads, kv_heads=1)
    found = problem.check()
    alone = problem.run(wanted="k")
    assert bitwise_equal(alone["d_k"], found["d_k"])


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 15, 16, 31, 63, 64, 65, 127, 128])
def test_every_place_of_the_diagonal(small: BackwardKernelConfig, offset: int) -> None:
    Problem(small, 70, 70 + offset, heads=1, causal=True).check()
    Problem(small, 70 + offset, 70, heads=1, causal=True).check()


@pytest.mark.parametrize("config", OF_80, ids=str)
@pytest.mark.parametrize("unseen", [64, 80, 90, 96, 170])
def test_queries_that_see_no_key_end_within_any_block(
    config: BackwardKernelConfig, unseen: int
) -> None:
    """In order their dQ comes from the first kernel, whose blocks do not end with those of 80."""
    found = Problem(config, 70 + unseen, 70, heads=1, causal=True).check()
    assert not found["d_q"][:, :unseen].any()


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 2), (4, 1)])
def test_gradients_of_shared_heads_are_summed(
    small: BackwardKernelConfig, heads: int, kv_heads: int
) -> None:
    problem = Problem(small, 40, 70, heads=heads, kv_heads=kv_heads, batch=2, causal=True)
    problem.check()


def test_without_keys(small: BackwardKernelConfig) -> None:
    found = Problem(small, 5, 0).run()
    assert not found["d_q"].any() and found["d_k"].shape == found["d_v"].shape
    assert found["d_k"].shape == (1, 0, 1, small.d_head)


@pytest.mark.parametrize("wanted", [w for n in (1, 2) for w in itertools.combinations("qkv", n)])
def test_only_what_is_wanted_is_computed(
    small: BackwardKernelConfig, wanted: tuple[str, ...]
) -> None:
    problem = Problem(small, 33, 70, causal=True)
    everything, found = problem.run(), problem.run("".join(wanted))
    assert set(found) == {f"d_{name}" for name in wanted}
    assert all(bitwise_equal(found[name], everything[name]) for name in found)


def test_any_strides_and_expanded_dimensions(small: BackwardKernelConfig) -> None:
    problem = Problem(small, 40, 50, heads=4, kv_heads=2, batch=2)
    plain = problem.run()
    for name in ("q", "k", "v", "d_o"):
        x = problem.inputs[name]
        problem.inputs[name] = x.transpose(1, 2).contiguous().transpose(1, 2)
    found = problem.run()
    assert all(bitwise_equal(found[n].contiguous(), plain[n]) for n in NAMES)
    assert found["d_q"].stride() == problem.inputs["q"].stride()
    row = torch.randn(1, 1, 1, small.d_head, dtype=torch.float16)
    problem.inputs["d_o"] = row.expand(problem.inputs["d_o"].shape)
    problem.check()


def test_every_run_gives_the_same_bits() -> None:
    for config in SOME:
        problem = Problem(config, 100, 140, heads=2, kv_heads=1, causal=True)
        first, second = problem.run(), problem.run()
        summed_as_they_come = set() if config.is_deterministic() else {"d_q"}
        names = set(NAMES) - summed_as_they_come
        assert all(bitwise_equal(first[name], second[name]) for name in names)


@pytest.mark.parametrize("dtype", [DType.FP16, pytest.param(DType.BF16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("factor", [1e-4, 1e2])
def test_small_and_large_outer_gradients(
    small: BackwardKernelConfig, dtype: DType, factor: float
) -> None:
    alike = (small.FAMILY, small.d_head, dtype)
    config = next(c for c in CONFIGS if (c.FAMILY, c.d_head, c.dtype) == alike)
    problem = Problem(config, 70, 90, causal=True)
    problem.inputs["d_o"] *= factor
    problem.check()


@pytest.mark.parametrize("seqlen_k", [64, 100, 192])
def test_a_log_sum_exp_of_minus_a_hundred(small: BackwardKernelConfig, seqlen_k: int) -> None:
    """Zeros in the place of keys that do not exist have scores of 0, which is e^100 too much. All
    queries point the same way, so that the errors of a row of dK do too: they do not average out
    over its elements, as the rule counts on."""
    problem = Problem(small, 70, seqlen_k, scale=0.125)
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(small.d_head, generator=generator)
    direction *= 8 / direction.norm()
    noise = torch.randn(1, seqlen_k, 1, small.d_head, generator=generator) * 0.1
    problem.inputs["q"][:] = (-12.5 * direction).half()
    problem.inputs["k"][:] = (direction + noise).half()
    assert problem.outputs[1].max() < -90
    assert max(problem.reference.worst_rows(problem.run()).values()) <= 1.5


def test_one_key_that_carries_everything(small: BackwardKernelConfig) -> None:
    problem = Problem(small, 70, 90)
    problem.inputs["k"][:, 17] = 4 * problem.inputs["q"][:, 3, :1]
    problem.check()


def test_a_head_with_nan_keeps_it(small: BackwardKernelConfig) -> None:
    clean = Problem(small, 40, 50, heads=2, kv_heads=2)
    dirty = Problem(small, 40, 50, heads=2, kv_heads=2)
    dirty.inputs["d_o"][:, 5, 1] = float("nan")
    expected, found = clean.run(), dirty.run()
    for name in NAMES:
        assert bitwise_equal(found[name][:, :, 0], expected[name][:, :, 0])
        assert found[name][:, :, 1].isnan().any()
