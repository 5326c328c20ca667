"""Every configuration has one name in each spelling, and nothing else is a name."""

from __future__ import annotations

import dataclasses
import re

import pytest

from flash_helpers.kernel_configs import (
    FAMILIES,
    DType,
    FlashForwardKernelConfig,
    PreviousKernelConfig,
    get_sm80_kernel_configs,
    known_configs,
    parse_kernel_name_into_config,
    parse_sm80_name,
    parse_symbol,
)
from flash_helpers.kernels.contract import Variant
from tests.properties import given, settings, st

NUMBERS = st.integers(1, 65535)
TILES = st.integers(0, 65535)
CONFIGS = st.builds(
    FlashForwardKernelConfig,
    st.sampled_from(DType), NUMBERS, NUMBERS, NUMBERS, NUMBERS,
    st.booleans(), st.booleans(), st.booleans(), TILES, TILES, TILES,
    st.booleans(), st.booleans(),
)  # fmt: skip

EXAMPLE = FlashForwardKernelConfig(
    DType.FP16, 128, 64, 64, 4, True, True, True, 0, 2, 2, True, True
)
SHORT = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax"
SYMBOL = (
    "flash_fwd_sm80_fp16_d128_r64_c64_w4_async_eager_swizzled_load_0_2_2_buffer_optsoftmax"
)  # fmt: skip
DEMANGLED = (
    "void flash_forward_kernel<FlashForwardKernelConfig"
    "{5, 128, 64, 64, 4, 1, 1, 1, 0, 2, 2, 1, 1}>(flash::ForwardArgs)"
)
TYPED = (
    "void flash_forward_kernel<FlashForwardKernelConfig"
    "{(c10::ScalarType)5, (int)128, (int)64, (int)64, (int)4, (bool)1, (bool)1, (bool)1, "
    "(int)0, (int)2, (int)2, (bool)1, (bool)1}>(flash::ForwardArgs)"
)


def demangled(config: FlashForwardKernelConfig, typed: bool) -> str:
    casts = {"DType": "(c10::ScalarType)", "int": "(int)", "bool": "(bool)"}
    values = [
        (casts[str(field.type)] if typed else "") + str(int(getattr(config, field.name)))
        for field in dataclasses.fields(config)
    ]
    return f"void flash_forward_kernel<FlashForwardKernelConfig{{{', '.join(values)}}}>(T1)"


def spellings(config: FlashForwardKernelConfig) -> list[str]:
    short = config.short_form()
    rows = [f"| {short} | 1.25 | x |", f"|{short}|"]
    ours = [config.kernel_name(), short, *rows]
    if isinstance(config, PreviousKernelConfig):
        return ours  # the demangled form is the predecessor's, which had one body
    return [*ours, demangled(config, False), demangled(config, True)]


def test_the_spellings_are_the_documented_ones() -> None:
    assert EXAMPLE.short_form() == str(EXAMPLE) == SHORT
    assert EXAMPLE.kernel_name() == SYMBOL
    plain = dataclasses.replace(
        EXAMPLE, async_copy=False, eager_load_blocks=False, swizzled=False,
        mma_double_buffer_loads=False, optimized_softmax=False, dtype=DType.BF16,
    )  # fmt: skip
    assert plain.short_form() == "(BF16, 128, 64, 64, 4): load_0_2_2_tiles"
    assert plain.kernel_name() == "flash_fwd_sm80_bf16_d128_r64_c64_w4_load_0_2_2"


def test_short_form_options() -> None:
    flags = "async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax"
    assert EXAMPLE.short_form(include_d_head=False) == f"(FP16, 64, 64, 4): {flags}"
    assert EXAMPLE.short_form(include_tup=False) == flags


@pytest.mark.parametrize(
    "text",
    [
        SHORT,
        SYMBOL,
        DEMANGLED,
        TYPED,
        f"| {SHORT} | 8311200.00 | 128 |",
        f"|   {SHORT}   |",
        DEMANGLED.replace("flash::ForwardArgs", "..."),
        DEMANGLED.replace("flash::ForwardArgs", ""),
        DEMANGLED.replace("flash::ForwardArgs", "const float *, FAForwardArgs const &"),
    ],
)
def test_accepted_spellings(text: str) -> None:
    assert parse_kernel_name_into_config(text) == EXAMPLE


def test_every_known_configuration_reads_back_from_every_spelling() -> None:
    for config in get_sm80_kernel_configs("all"):
        for text in spellings(config):
            assert parse_kernel_name_into_config(text) == config, text


@given(CONFIGS)
def test_any_configuration_reads_back_from_every_spelling(
    config: FlashForwardKernelConfig,
) -> None:
    for text in spellings(config):
        parsed = parse_kernel_name_into_config(text)
        assert parsed == config
        # 1 == True: compare the types too.
        assert list(map(type, dataclasses.astuple(parsed))) == list(
            map(type, dataclasses.astuple(config))
        )


@given(CONFIGS, CONFIGS)
def test_different_configurations_have_different_names(
    a: FlashForwardKernelConfig, b: FlashForwardKernelConfig
) -> None:
    assert (a == b) == (a.kernel_name() == b.kernel_name()) == (a.short_form() == b.short_form())


def test_symbols_are_c_identifiers() -> None:
    assert all(re.fullmatch("[a-z_][a-z0-9_]*", c.kernel_name()) for c in known_configs())
    assert len({c.kernel_name() for c in known_configs()}) == len(known_configs())


REJECTED = [
    "",
    " ",
    "prog",
    "flash_forward_kernel",
    SHORT + " ",
    " " + SHORT,
    SHORT + "\n",
    SHORT + "GARBAGE",
    SHORT + "; rm -rf x",
    SHORT.replace("FP16", "fp16"),
    SHORT.replace("FP16", "FP32"),
    SHORT.replace("FP16", "5"),
    SHORT.replace("128", "0128"),
    SHORT.replace("128", "+128"),
    SHORT.replace("128", "-128"),
    SHORT.replace("128", "128.0"),
    SHORT.replace("128", "1_28"),
    SHORT.replace("128", "١٢٨"),  # Arabic-Indic digits: \d and int() take them
    SHORT.replace("128", "１２８"),  # full-width digits
    SHORT.replace("128", "1٢٨"),  # after an ASCII one, where \d would be just as wrong
    SYMBOL.replace("128", "1٢٨"),
    SHORT.replace("128", "99999"),
    SHORT.replace("128", "0"),
    SHORT.replace("128", "1" * 5000),
    SHORT.replace("128, ", ""),
    SHORT.replace(", 4)", ", 4, 4)"),
    SHORT.replace(", ", ","),
    SHORT.replace("async+eager", "eager+async"),
    SHORT.replace("async+", "async+async+"),
    SHORT.replace("async", "Async"),
    SHORT.replace("+load_0_2_2_tiles", ""),
    SHORT.replace("_tiles", ""),
    SHORT.replace("+buffer+opt_softmax", "+opt_softmax+buffer"),
    SHORT.replace("opt_softmax", "optsoftmax"),
    SHORT + "+",
    f"{SHORT} | 1.0 |",
    f"| {SHORT}",
    f"| 1 | {SHORT} |",
    f"| {SHORT} | 1.0",
    f"| {SHORT} |\n| {SHORT} |",
    "||",
    SYMBOL + "_",
    SYMBOL + "(flash::ForwardArgs)",
    "_" + SYMBOL,
    SYMBOL.upper(),
    SYMBOL.replace("d128", "d0128"),
    SYMBOL.replace("sm80", "sm90"),
    SYMBOL.replace("optsoftmax", "opt_softmax"),
    SYMBOL.replace("async_eager", "eager_async"),
    DEMANGLED.replace(">(flash::ForwardArgs)", ">"),
    DEMANGLED + "; rm -rf x",
    DEMANGLED + "\n",
    DEMANGLED.replace("(flash::ForwardArgs)", "(flash::ForwardArgs"),
    DEMANGLED.replace("flash::ForwardArgs", "$(touch x)"),
    DEMANGLED.replace("void ", ""),
    DEMANGLED.replace("{5", "{6"),
    DEMANGLED.replace("1, 1, 1", "1, 2, 1"),
    DEMANGLED.replace("1, 1, 1", "true, true, true"),
    DEMANGLED.replace(", 1}", "}"),
    DEMANGLED.replace(", 1}", ", 1, 1}"),
    TYPED.replace("(bool)1", "1", 1),
    TYPED.replace("(bool)1", "(int)1", 1),
    TYPED.replace("c10::ScalarType", "int"),
]


@pytest.mark.parametrize("text", REJECTED, ids=lambda text: ascii(text)[:60])
def test_everything_else_is_rejected_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a short form such as '\(FP16, 128") as error:
        parse_kernel_name_into_config(text)
    assert len(str(error.value)) < 250 * len(FAMILIES)  # a huge input is not echoed


@pytest.mark.parametrize("value", [None, 5, b"x", EXAMPLE])
def test_other_types_are_rejected_too(value: object) -> None:
    with pytest.raises(ValueError, match="does not name a kernel"):
        parse_kernel_name_into_config(value)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from(SHORT + SYMBOL + "|٤\n"), max_size=90))
def test_noise_is_never_a_crash(text: str) -> None:
    try:
        config = parse_kernel_name_into_config(text)
    except ValueError:
        return
    assert text in (config.short_form(), config.kernel_name()) or text in spellings(
        parse_sm80_name(text)
    )


@settings(deadline=None)  # looking for the nearest name takes its time on a loaded machine
@given(st.data())
def test_one_changed_character_never_names_the_same_configuration(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([SHORT, SYMBOL, DEMANGLED.replace("flash::ForwardArgs", "")]))
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    try:
        parsed = parse_kernel_name_into_config(changed)
    except ValueError:
        return
    assert (parsed == EXAMPLE) == (changed == text)


def test_a_misspelling_names_the_nearest() -> None:
    for config in (EXAMPLE, known_configs()[3]):
        for name in (config.short_form(), config.kernel_name()):
            with pytest.raises(ValueError) as error:
                parse_kernel_name_into_config(name.replace("load", "lod"))
            assert f"nearest valid name is {name!r}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("FP16", DType.FP16), ("fp16", DType.FP16), ("5", DType.FP16),
     ("BF16", DType.BF16), ("bf16", DType.BF16), ("15", DType.BF16)],
)  # fmt: skip
def test_dtype_from_string(text: str, expected: DType) -> None:
    assert DType.from_string(text) is expected


@pytest.mark.parametrize(
    "text", ["", "FP32", " FP16", "FP16\n", "05", "15.0", "٥", "float16", "-5"]
)
def test_dtype_from_string_rejects(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of FP16 \(5\), BF16 \(15\)"):
        DType.from_string(text)


@pytest.mark.parametrize(
    "change",
    [{"dtype": 5}, {"async_copy": 1}, {"B_r": True}, {"B_r": 64.0}, {"B_r": 0}, {"d_head": -1},
     {"n_warps": 65536}, {"V_mma_load_K_tiles": -1}],
    ids=str,
)  # fmt: skip
def test_a_configuration_is_well_formed_by_construction(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))} must be"):
        dataclasses.replace(EXAMPLE, **change)  # type: ignore[arg-type]


def test_configurations_are_ordered_values() -> None:
    bigger = dataclasses.replace(EXAMPLE, B_r=128)
    assert bigger > EXAMPLE and len({EXAMPLE, bigger, dataclasses.replace(EXAMPLE)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXAMPLE.B_r = 1  # type: ignore[misc]


@settings(max_examples=20, deadline=None)  # the message of an unknown name takes a search
@given(CONFIGS)
def test_a_configuration_has_two_symbols(config: FlashForwardKernelConfig) -> None:
    assert parse_symbol(config.kernel_name()) == (config, Variant.WHOLE)
    assert parse_symbol(config.symbol(Variant.ANY)) == (config, Variant.ANY)
    with pytest.raises(ValueError):  # a configuration's name is that of its first kernel
        parse_kernel_name_into_config(config.symbol(Variant.ANY))


@pytest.mark.parametrize(
    "text", [SHORT, SYMBOL + "_general_general", "_general", SHORT + "_general"]
)
def test_other_text_is_no_symbol(text: str) -> None:
    with pytest.raises(ValueError, match="does not name a kernel configuration"):
        parse_symbol(text)
