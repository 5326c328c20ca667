"""The named sets have exactly the specified members; KERNELS is a strict word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_helpers.kernel_configs import (
    DType,
    FlashForwardKernelConfig,
    KernelConfig,
    config_order,
    get_autotuning_kernel_configs,
    get_kernel_configs,
    get_kernel_progression_configs,
    get_kernels_to_build,
    get_sm80_kernel_configs,
    known_configs,
    parse_sm80_name,
    should_autotune_config,
    valid_words,
    violations,
)

TUNED = parse_sm80_name(
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax"
)
BIG = replace(TUNED, B_r=128, Q_mma_load_K_tiles=2)
SMALL_KV = replace(TUNED, B_c=32, Q_mma_load_K_tiles=2)


@pytest.fixture(autouse=True)
def no_kernels_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELS", raising=False)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (TUNED, True),
        (BIG, True),
        (SMALL_KV, True),
        (replace(TUNED, async_copy=False), False),  # eager without async
        (replace(TUNED, async_copy=False, eager_load_blocks=False), True),
        (replace(TUNED, eager_load_blocks=False), True),
        (replace(TUNED, K_mma_load_K_tiles=0), True),  # Q tiles are 0: may differ from K's
        (replace(BIG, K_mma_load_K_tiles=0), False),
        (replace(BIG, V_mma_load_K_tiles=0), True),
        (replace(TUNED, n_warps=8), False),
        (replace(BIG, n_warps=8), True),
        (replace(SMALL_KV, Q_mma_load_K_tiles=0), False),
        (replace(TUNED, Q_mma_load_K_tiles=2), False),
        (replace(BIG, Q_mma_load_K_tiles=0), False),
        (replace(BIG, B_c=32, Q_mma_load_K_tiles=0, K_mma_load_K_tiles=0), False),
    ],
)
def test_should_autotune_config(config: FlashForwardKernelConfig, kept: bool) -> None:
    assert should_autotune_config(config) is kept


def test_the_autotuning_set() -> None:
    configs = get_autotuning_kernel_configs()
    assert len(configs) == len(set(configs)) == 80
    assert configs == sorted(configs)
    for dtype in DType:
        assert len(get_autotuning_kernel_configs([dtype])) == 40
    assert {(c.d_head, c.n_warps) for c in configs} == {(128, 4)}
    assert all(c.async_copy and c.eager_load_blocks and c.swizzled for c in configs)
    shapes = {(c.B_r, c.B_c, c.Q_mma_load_K_tiles, c.K_mma_load_K_tiles) for c in configs}
    assert shapes == {
        (64, 32, 2, 2),
        (64, 64, 0, 0),
        (64, 64, 0, 2),
        (128, 32, 2, 2),
        (128, 64, 2, 2),
    }
    assert {c.V_mma_load_K_tiles for c in configs} == {0, 2}


def test_the_progression() -> None:
    steps = get_kernel_progression_configs()
    assert [c.short_form(include_tup=False) for c in steps] == [
        "async+load_0_0_0_tiles",
        "async+swizzled+load_0_0_0_tiles",
        "async+eager+swizzled+load_0_0_0_tiles",
        "async+eager+swizzled+load_2_2_2_tiles",
        "async+eager+swizzled+load_2_2_2_tiles+buffer",
        "async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax",
        "async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
    ]
    assert {c.short_form().partition(":")[0] for c in steps} == {"(FP16, 128, 64, 64, 4)"}


def test_progall_crosses_the_steps_with_the_shapes() -> None:
    configs = get_kernel_progression_configs(all=True)
    shapes = {(c.B_r, c.B_c, c.n_warps) for c in configs}
    assert shapes == {
        (128, 128, 4), (128, 128, 8), (128, 64, 4), (128, 64, 8), (128, 32, 4), (128, 32, 8),
        (64, 64, 4), (64, 32, 4),
    }  # fmt: skip
    assert len(configs) == len(set(configs)) == 7 * len(shapes)
    assert set(get_kernel_progression_configs()) <= set(configs)


def test_every_member_of_every_set_can_be_built_everywhere() -> None:
    for config in known_configs():
        everywhere = (None, "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
        for arch in everywhere if config.FAMILY == "sm80" else (None, "9.0"):
            assert violations(config, arch) == []


def test_selection_words() -> None:
    assert get_kernel_configs("tune") == get_autotuning_kernel_configs()
    assert get_kernel_configs("prog") == get_kernel_progression_configs()
    assert get_kernel_configs("progall") == get_kernel_progression_configs(all=True)
    words = ("tune", "prog", "d64", "previous", "hopper", "ampere-bwd", "hopper-bwd", "serve",
             "hopper-serve", "mla", "hopper-mla")  # fmt: skip
    parts = {c for word in words for c in get_kernel_configs(word)}
    assert get_kernel_configs("all") == sorted(parts, key=config_order) and len(parts) == 376
    assert len(get_sm80_kernel_configs("all")) == 113  # and 15 earlier steps
    assert len(get_kernel_configs("d64")) == 28
    blocks = [get_kernel_configs(f"{r},{c}") for r in (64, 128) for c in (32, 64)]
    together = sorted((c for part in blocks for c in part), key=config_order)
    assert together == get_kernel_configs("tune")
    assert {c.blocks() for c in get_kernel_configs("64,32")} == {(64, 32)}


def test_half_has_one_of_each_pair_that_differs_in_the_type() -> None:
    def without_type(config: KernelConfig) -> str:
        return str(config).replace(config.dtype.name, "")

    every, half = get_kernel_configs("all"), get_kernel_configs("half")
    assert set(half) < set(every) and half == sorted(half, key=config_order)
    names = [without_type(config) for config in half]
    assert len(set(names)) == len(names) and {*names} == {*map(without_type, every)}
    for family in {config.FAMILY for config in every} - {"sm90_serve_mla"}:  # of one pair
        assert {c.dtype for c in half if family == c.FAMILY} == {*DType}


def test_the_environment_is_read_when_the_key_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_kernel_configs() == get_kernel_configs("all")
    monkeypatch.setenv("KERNELS", "prog")
    assert get_kernel_configs() == get_kernel_configs("prog")
    assert get_kernel_configs("tune") == get_autotuning_kernel_configs()
    assert get_kernels_to_build() == sorted(get_kernel_configs("prog"), key=config_order)


def test_what_is_built_is_the_sorted_union_of_what_was_asked_for() -> None:
    for word in valid_words():
        assert get_kernels_to_build(word) == sorted(get_kernel_configs(word), key=config_order)
    both = get_kernels_to_build("64,64", "prog")
    assert both == sorted(
        {*get_kernel_configs("64,64"), *get_kernel_configs("prog")}, key=config_order
    )


REJECTED = [
    "progGARBAGE", "prog; rm -rf x", "1,1", "64,64,64", "0064,32", "64, 32", " prog", "prog\n",
    "PROG", "Tune", "128,128", "32,64", "64", "64,", ",32", "64,32\n", "-64,32",
    "٦٤,٣٢", "6٤,3٢", "６４,32",
    "64.0,32", "6_4,32", "prog,tune", "prog tune", "prog;tune", "*", "9" * 5000 + ",32",
]  # fmt: skip


@pytest.mark.parametrize("key", REJECTED, ids=lambda key: ascii(key)[:30])
@pytest.mark.parametrize("by_environment", [False, True])
def test_anything_else_is_an_error_that_lists_the_words(
    key: str, by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_environment:
        monkeypatch.setenv("KERNELS", key)
    with pytest.raises(ValueError) as error:
        get_kernel_configs("" if by_environment else key)
    message = str(error.value)
    assert all(word in message for word in valid_words()) and len(message) < 500
    assert ("KERNELS" in message) is by_environment


def test_a_set_but_empty_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS", "")
    with pytest.raises(ValueError, match="KERNELS '' is not a selection"):
        get_kernel_configs()
