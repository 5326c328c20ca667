"""The sixteen steps: what they are called, what they are made of, and that they share no code."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.base.paths import previous_dir
from flash_helpers.codegen import render_translation_unit
from flash_helpers.codegen.sources import included_headers
from flash_helpers.kernel_configs import (
    DType,
    FlashForwardKernelConfig,
    PreviousKernelConfig,
    config_order,
    get_kernel_configs,
    has_general_kernel,
    parse_kernel_name_into_config,
    parse_symbol,
    takes_everything,
    violations,
)
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.family import Step
from flash_helpers.kernels.history import load_steps, select_versions
from flash_helpers.kernels.sm80_fwd import steps as sm80_steps

STEPS = load_steps()
FOLDERS = sorted({step.source for step in STEPS if step.source})
# What bodies may include: instructions, tiles, the argument and configuration records, and what the
# road itself declares as common. Of the family of the live kernel, that is the configuration alone.
SHARED = ("flash/core/", "flash/ptx/", "flash/tile/", "previous_kernels/common/")
CONFIGURATION = "/flash/sm80/config.h"


def plain(step: Step) -> FlashForwardKernelConfig:
    """The configuration that the step's kernel has."""
    config = step.config
    found = config.plain if isinstance(config, PreviousKernelConfig) else config
    assert isinstance(found, FlashForwardKernelConfig)
    return found


def namespace_of(folder: str) -> str:
    return f"step{folder[:2]}"


def other(config: KernelConfig, **changes: Any) -> PreviousKernelConfig:
    """A step's configuration with other fields."""
    assert isinstance(config, PreviousKernelConfig)
    return replace(config, plain=replace(config.plain, **changes))


def body(folder: str) -> Path:
    return previous_dir() / folder / sm80_steps.BODY_FILE


def test_there_are_sixteen_and_the_last_is_the_live_kernel() -> None:
    assert [step.number for step in STEPS] == list(range(1, 17))
    assert all(step.source for step in STEPS[:-1]) and not STEPS[-1].source
    assert type(STEPS[-1].config) is FlashForwardKernelConfig
    assert get_kernel_configs("previous") == [step.config for step in STEPS]
    assert all(violations(step.config, "9.0") == [] for step in STEPS)
    assert len({step.title for step in STEPS}) == 16
    assert all(set(step.fa2) == {"a100", "rtx3090"} for step in STEPS)
    assert all(step.shows for step in STEPS[1:])


def test_the_first_seven_are_the_progression_on_a_body_of_their_own() -> None:
    assert [plain(step) for step in STEPS[:7]] == get_kernel_configs("prog")
    assert {step.source for step in STEPS[:7]} == {"01_base"}
    assert [step.is_configuration for step in STEPS] == [False] + [True] * 6 + [False] * 9


def test_every_folder_is_a_step_and_named_after_it() -> None:
    found = {path.name for path in previous_dir().iterdir() if path.is_dir()}
    assert found == {*FOLDERS, "common"}
    for folder in FOLDERS:
        first = next(step.number for step in STEPS if step.source == folder)
        assert int(folder[:2]) == first


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"step{step.number:02d}")
def test_names_lead_back_to_the_step(step: Step) -> None:
    config = step.config
    for text in (config.kernel_name(), config.short_form(), f"| {config.short_form()} | 1 |"):
        assert parse_kernel_name_into_config(text) == config
    assert config.to_cpp_struct() == plain(step).to_cpp_struct()


@pytest.mark.parametrize(
    "text",
    [
        "flash_fwd_step16_fp16_d128_r64_c64_w4_load_0_0_0",  # the live kernel has its own name
        "flash_fwd_step00_fp16_d128_r64_c64_w4_load_0_0_0",
        "flash_fwd_step8_fp16_d128_r64_c64_w4_load_0_0_0",
        "flash_fwd_step08_flash_fwd_sm80_fp16_d128_r64_c64_w4_load_0_0_0",
        "(FP16, 128, 64, 64, 4): load_0_0_0_tiles@step8",
        "(FP16, 128, 64, 64, 4): load_0_0_0_tiles@step08@step08",
        "(FP16, 128, 64, 64, 4): load_0_0_0_tiles @step08",
        "(FP16, 128, 64, 64, 4)@step08",
    ],
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not name a kernel configuration"):
        parse_kernel_name_into_config(text)


def test_a_body_takes_its_own_options_and_any_dtype_and_head_size() -> None:
    eighth = STEPS[7].config
    assert violations(other(eighth, dtype=DType.BF16, d_head=64)) == []
    (reason,) = violations(other(eighth, swizzled=False, B_c=32))
    assert reason == "Step 8 is a kernel with B_c = 64, not 32, swizzled = True, not False."
    with pytest.raises(ValueError, match=r"step must be in 1\.\.15"):
        PreviousKernelConfig(plain(STEPS[7]), 16)


def test_steps_are_sorted_behind_the_live_kernels() -> None:
    mixed = [STEPS[8].config, STEPS[15].config, STEPS[0].config, *get_kernel_configs("prog")]
    for order in itertools.islice(itertools.permutations(mixed), 50):
        kinds = [getattr(config, "step", 0) for config in sorted(order, key=config_order)]
        assert kinds == [0] * 8 + [1, 9]
    assert STEPS[6].config != plain(STEPS[6]) and plain(STEPS[6]) != STEPS[6].config
    assert len({STEPS[6].config, plain(STEPS[6]), STEPS[7].config}) == 3


def test_versions_on_the_command_line() -> None:
    assert select_versions("all") == get_kernel_configs("previous")
    assert select_versions("16,3,3") == [STEPS[15].config, STEPS[2].config]
    for text in ("", "0", "17", "1,", "ALL", "1-3", "٣", "01"):
        with pytest.raises(ValueError, match="expected 1 to 16, 3,7,8 or all"):
            select_versions(text)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_body_has_a_namespace_of_its_own_and_includes_no_other_step(folder: str) -> None:
    text = body(folder).read_text()
    namespaces = set(re.findall(r"^namespace (\S+) \{", text, re.M))
    assert namespaces == {f"flash::previous::{namespace_of(folder)}"}
    for used in re.findall(r"\bstep\d\d\b", text):
        assert used == namespace_of(folder)
    for header in re.findall(r'#include "([^"]+)"', text):
        assert header.startswith(SHARED), f"{folder} includes {header}"
    closure = {str(path) for path in included_headers(text)}
    others = [f"{previous_dir()}/{other}/" for other in FOLDERS if other != folder]
    assert not any(path.startswith(tuple(others)) for path in closure)
    assert {path[-len(CONFIGURATION) :] for path in closure if "/sm80/" in path} == {CONFIGURATION}


def test_steps_take_whole_blocks_and_have_no_second_kernel() -> None:
    """Also those whose options would give the live body one."""
    assert has_general_kernel(plain(STEPS[14]))
    for step in STEPS[:-1]:
        assert not has_general_kernel(step.config) and not takes_everything(step.config)
        assert parse_symbol(step.config.symbol(Variant.WHOLE)) == (step.config, Variant.WHOLE)
        with pytest.raises(ValueError, match="whole blocks without a mask"):
            step.config.symbol(Variant.ANY)
        with pytest.raises(ValueError, match="does not name"):
            parse_symbol(step.config.kernel_name() + "_general")


def test_no_two_units_can_collide() -> None:
    """All bodies in one translation unit: their names do not meet (nvcc compiles it in builds)."""
    unit = render_translation_unit([step.config for step in STEPS])
    bodies = re.findall(r"^  (flash::\S+)::forward<", unit, re.M)
    assert len(bodies) == 16 + 1  # the live kernel has a general one beside it
    assert len(set(bodies)) == len(FOLDERS) + 1
    assert unit.count("#include") == 2 + len(FOLDERS) + 1


def test_the_code_is_small_and_has_no_assembly() -> None:
    files = sorted(previous_dir().rglob("*.cuh"))
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    assert sum(lengths.values()) < 3000
    assert max(lengths.values()) < 400
    assert not [path for path in files if re.search(r"\basm\b", path.read_text())]


def test_manifest_keeps_the_step(tmp_path: Path) -> None:
    from flash_helpers.codegen import generate, load_manifest

    configs = [STEPS[8].config, plain(STEPS[8])]
    generate(tmp_path, configs)
    kernels = load_manifest(tmp_path).kernels
    assert {kernel.config for kernel in kernels} == set(configs)
    assert {type(kernel.config) for kernel in kernels} == {
        FlashForwardKernelConfig,
        PreviousKernelConfig,
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("number = 2\n", "number = 3\n", "must be 1, 2, 3"),
        ('title = "base"', 'titel = "base"', "step 1: unknown titel"),
        ("load_0_0_0_tiles", "load_0_0_tiles", "does not name a kernel"),
        ("[[step]]", "[[stop]]", "'step'|unknown stop"),
    ],
)
def test_a_wrong_entry_is_named(
    old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (previous_dir() / sm80_steps.STEPS_FILE).read_text()
    (tmp_path / sm80_steps.STEPS_FILE).write_text(text.replace(old, new, 1))
    monkeypatch.setattr(sm80_steps, "previous_dir", lambda: tmp_path)
    with pytest.raises(ValueError, match=message):
        sm80_steps.load_steps.__wrapped__()
