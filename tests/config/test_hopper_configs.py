"""The Hopper family's configurations: names, sets, constraints, FLOPs."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from pathlib import Path

import pytest

from flash_helpers.kernel_configs import (
    DType,
    HopperForwardKernelConfig,
    get_hopper_kernel_configs,
    get_hopper_smoke_kernel_configs,
    get_kernel_configs,
    kv_tile_flop,
    parse_kernel_name_into_config,
    parse_sm80_name,
    violations,
)
from flash_helpers.kernels.sm90_fwd.config import OPTIONS, MaxPolicy
from flash_helpers.kernels.sm90_fwd.constraints import (
    HEAD_DIMENSIONS,
    WGMMA_COLUMNS,
    working_registers,
)
from flash_helpers.kernels.sm90_fwd.constraints import (
    violations as own_violations,
)
from tests.properties import given, st

PTX = Path(__file__).resolve().parents[2] / "csrc" / "include" / "flash" / "ptx"
SHORT = "(FP16, 128, 128, 128, 2, 2, 1): hopper+lazy+overlap+pingpong"
SYMBOL = "flash_fwd_sm90_fp16_d128_m128_n128_g2_b2_q1_lazy_overlap_pingpong"


def example(**fields: object) -> HopperForwardKernelConfig:
    config = parse_kernel_name_into_config(SYMBOL)
    assert isinstance(config, HopperForwardKernelConfig)
    return replace(config, **fields)  # type: ignore[arg-type]


FIELDS = dataclasses.fields(HopperForwardKernelConfig)
KINDS = {
    "DType": st.sampled_from(DType),
    "MaxPolicy": st.sampled_from(MaxPolicy),
    "bool": st.booleans(),
    "int": st.integers(1, 999),
}
CONFIGS = st.builds(
    HopperForwardKernelConfig, **{field.name: KINDS[str(field.type)] for field in FIELDS}
)


def test_both_spellings() -> None:
    config = example()
    assert config.short_form() == str(config) == SHORT and config.kernel_name() == SYMBOL
    assert parse_kernel_name_into_config(f"| {SHORT} | 1.0 |") == config
    off = {field: type(getattr(config, field))(0) for field, _ in OPTIONS}
    bare = replace(config, dtype=DType.BF16, **off)
    assert bare.short_form() == "(BF16, 128, 128, 128, 2, 2, 1): hopper"
    assert bare.kernel_name() == "flash_fwd_sm90_bf16_d128_m128_n128_g2_b2_q1"
    optimistic = replace(config, max_policy=MaxPolicy.OPTIMISTIC)
    assert "_q1_optimistic_overlap_" in optimistic.kernel_name()
    assert ".max_policy = flash::sm90::MaxPolicy::kOptimistic," in optimistic.to_cpp_struct()


@given(CONFIGS)
def test_any_configuration_reads_back_from_both(config: HopperForwardKernelConfig) -> None:
    for text in (config.short_form(), config.kernel_name()):
        parsed = parse_kernel_name_into_config(text)
        assert parsed == config
        types = [type(value) for value in dataclasses.astuple(parsed)]
        assert types == [type(value) for value in dataclasses.astuple(config)]


@given(CONFIGS, CONFIGS)
def test_different_configurations_have_different_names(
    a: HopperForwardKernelConfig, b: HopperForwardKernelConfig
) -> None:
    assert (a == b) == (a.kernel_name() == b.kernel_name()) == (a.short_form() == b.short_form())


def test_every_option_has_a_word_of_its_own() -> None:
    shape = ("dtype", "d_head", "block_n", "n_mma_groups", "n_buffers", "n_q_buffers")
    named = [field.name for field in FIELDS if field.name not in shape]
    assert [field for field, _ in OPTIONS] == named, "without a word it would be lost in the names"
    words = [word for _, word in OPTIONS if word]
    assert len(set(words)) == len(words)
    assert all(re.fullmatch("[a-z]+", word) for word in words)


def test_the_policies_are_the_header_s() -> None:
    text = (PTX.parent / "sm90" / "config.h").read_text()
    body = re.search(r"enum class MaxPolicy : int {(.*?)};", text, re.DOTALL)
    assert body is not None
    found = {f"k{name}": int(number) for name, number in re.findall(r"k(\w+) = (\d+)", body[1])}
    assert found == {policy.to_cpp_str().rpartition("::")[2]: policy.value for policy in MaxPolicy}


@pytest.mark.parametrize(
    "text",
    [
        SYMBOL.replace("m128", "m192"),  # not the rows of two groups
        SYMBOL.replace("overlap_pingpong", "pingpong_overlap"),
        SYMBOL.replace("_lazy", "_lazy_lazy"),
        SYMBOL.replace("_lazy", "_exact"),
        SYMBOL.replace("_lazy", "_1"),
        SYMBOL.replace("d128", "d0128"),
        SYMBOL.replace("sm90", "sm80"),
        SYMBOL + "_",
        SYMBOL + "\n",
        SHORT.replace("hopper+", ""),
        SHORT.replace("+lazy", "+lazy+lazy"),
        SHORT.replace("FP16", "fp16"),
        SHORT.replace("2, 2, 1", "2, 2"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"does not name a kernel configuration"):
        parse_kernel_name_into_config(text)


def test_a_misspelling_names_the_nearest() -> None:
    for name in (SHORT, SYMBOL):
        with pytest.raises(ValueError, match="nearest valid name is") as error:
            parse_kernel_name_into_config(name.replace("overlap", "overlop"))
        assert repr(name) in str(error.value)


def test_a_name_of_the_other_family_is_refused_where_one_is_needed() -> None:
    with pytest.raises(ValueError, match="another family"):
        parse_sm80_name(SYMBOL)


@pytest.mark.parametrize("field", [field.name for field in FIELDS])
def test_fields_have_their_types(field: str) -> None:
    for wrong in (1.0, "1", None, 70000, -1):
        with pytest.raises(ValueError, match=field):
            example(**{field: wrong})


def test_the_sets() -> None:
    tuning = get_hopper_kernel_configs()
    assert get_kernel_configs("hopper") == tuning == sorted(tuning)
    assert len(set(tuning)) == len(tuning) <= 60
    kinds = {(config.dtype, config.d_head) for config in tuning}
    assert kinds == {(dtype, d_head) for dtype in DType for d_head in HEAD_DIMENSIONS}
    for config in tuning:  # both dtypes have the same shapes
        other = DType.BF16 if config.dtype is DType.FP16 else DType.FP16
        assert replace(config, dtype=other) in tuning
    smoke = get_hopper_smoke_kernel_configs()
    assert get_kernel_configs("hopper-smoke") == smoke
    assert {c.d_head for c in smoke} == set(HEAD_DIMENSIONS) and {c.dtype for c in smoke} == {
        *DType
    }
    for field in {field for field, _ in OPTIONS} - {"d_v"}:  # the serving family's
        assert len({getattr(config, field) for config in smoke}) > 1, f"{field} never changes"
    assert set(tuning) <= set(get_kernel_configs("all"))


def test_block_n_is_what_wgmma_has() -> None:
    text = (PTX / "wgmma.cuh").read_text()
    found = sorted(map(int, re.findall(r"^FLASH_WGMMA\((\d+),", text, re.MULTILINE)))
    assert tuple(n for n in found if n > 32) == WGMMA_COLUMNS  # 32: half a chunk of dQ
    assert all(n % 16 == 0 for n in WGMMA_COLUMNS), "P V takes keys in k-steps of 16"
    assert set(HEAD_DIMENSIONS) <= set(WGMMA_COLUMNS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"o_in_q": True, "n_q_buffers": 2}, "o_in_q needs n_q_buffers = 1"),
        ({"overlap": False, "max_policy": MaxPolicy.OPTIMISTIC}, "OPTIMISTIC needs overlap"),
        ({"d_head": 80}, "d_head = 80 is not supported: it must be 64 or 96 or 128 or 192 or 256."),
        ({"block_n": 120}, "block_n = 120 is not supported: it must be 48 or 64 or"),
        ({"n_mma_groups": 4}, "n_mma_groups = 4 is not supported: it must be 2 or 3."),
        ({"n_mma_groups": 1}, "n_mma_groups = 1 is not supported: it must be 2 or 3."),
        ({"n_q_buffers": 3}, "n_q_buffers = 3 is not supported: it must be 1 or 2."),
        ({"block_n": 176}, r"2 buffers .* need 245860 bytes of shared memory, .* at most 232448"),
        ({"n_mma_groups": 3}, "about 192 registers .* with 3 groups it has 160"),
        ({"d_head": 256, "block_n": 128, "n_buffers": 1, "o_in_q": True}, "about 256 registers"),
        ({"d_v": 64}, "d_v is of the serving family: values are as wide as keys."),
    ],
)
def test_what_cannot_be_built(fields: dict[str, object], message: str) -> None:
    (reason,) = violations(example(**fields))
    assert re.search(message, reason), reason


def test_only_sm_90a_has_the_instructions() -> None:
    assert violations(example(), "9.0a") == violations(example(), "sm_90a") == []
    for arch in ("8.0", "10.0", "12.0"):
        (reason,) = violations(example(), arch)
        assert f"Architecture {arch} is not supported" in reason and "sm_90a" in reason


def test_registers_at_the_limit_that_was_measured() -> None:
    """ptxas 13.0: d 128 with three groups compiles with 80 keys a block, spills with 96; without
    overlap it compiles with 112."""
    three = example(n_mma_groups=3, n_buffers=1)
    assert working_registers(replace(three, block_n=80)) == 64 + 40 + 20
    assert own_violations(replace(three, block_n=80)) == []
    assert len(own_violations(replace(three, block_n=96))) == 1
    assert own_violations(replace(three, block_n=112, overlap=False, o_in_q=True)) == []


def test_blocks_at_the_ends_are_computed_whole() -> None:
    config = example()
    tile = kv_tile_flop(128, 128, 128)
    assert config.total_flop(2, 3, 256) == 6 * 2 * (2 * tile + 128 * 128)
    assert config.total_flop(1, 1, 129) == config.total_flop(1, 1, 256)
    assert config.variants() == (config.variant_for(129, 1, causal=True),)
