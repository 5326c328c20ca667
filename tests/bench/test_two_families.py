"""Both families of kernels in one measurement: the table, switches, parts of a build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flash_attention.tuning_table import Entry, read_table
from flash_helpers.build.parts import split
from flash_helpers.codegen import generate, render_registry
from flash_helpers.kernel_configs import (
    FAMILIES,
    DType,
    get_kernel_configs,
    parse_kernel_name_into_config,
)
from flash_lab.bench.autotune_cli import main
from flash_lab.bench.landscape import worth_of_switches
from flash_lab.bench.results import by_problem
from flash_lab.bench.row import Row

from .test_report_html import row

HERE = Path(__file__).resolve().parent
BACKEND = "fake_backend:FakeBackend"


def kernels(word: str, blocks: tuple[int, int]) -> list[str]:
    found = (c for c in get_kernel_configs(word) if (c.dtype, c.d_head) == (DType.FP16, 128))
    return [c.short_form() for c in found if c.blocks() == blocks]


HOPPER, NEAR = kernels("hopper", (128, 128))[:2]
HOPPER_64 = kernels("hopper", (128, 64))[0]
AMPERE_64, AMPERE_32 = kernels("tune", (128, 64))[0], kernels("tune", (128, 32))[0]
MIXED = [HOPPER, NEAR, HOPPER_64, AMPERE_64, AMPERE_32]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))


def arguments(tmp_path: Path, *more: str) -> list[str]:
    chosen = [word for name in MIXED for word in ("--kernels", name)]
    out = ["--out", str(tmp_path / "rows.jsonl"), "--no_ceilings"]
    return [*chosen, *out, *more]


def tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[float], *more: str
) -> dict[str, Entry]:
    """Entries by family. Kernels take `times` in ms, and as many joules and mebibytes."""
    by_name = {f"{name}|": ms for name, ms in zip(MIXED, times, strict=True)}
    monkeypatch.setenv("FAKE_SPEEDS", json.dumps(by_name))
    monkeypatch.setenv("FAKE_JOULES", json.dumps(by_name))
    n_bytes = {name: int(ms * 2**20) for name, ms in by_name.items()}
    monkeypatch.setenv("FAKE_BYTES", json.dumps(n_bytes))
    table = ["--no_build", "--table", str(tmp_path / "table.json")]
    quick = ["--seq_lens", "512", "--dtypes", "fp16", *table]
    assert main(arguments(tmp_path, *quick, *more), BACKEND) == 0
    found = read_table(tmp_path / "table.json")
    by_family = {parse_kernel_name_into_config(e.kernels[0]).FAMILY: e for e in found}
    assert len(by_family) == len(found)
    return by_family


def test_a_family_far_behind_keeps_its_block_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(128, 64) is a block of both families: the faster one must not hide the other."""
    found = tuned(tmp_path, monkeypatch, [0.3, 0.31, 0.5, 1.0, 2.0])
    assert found["sm90"].kernels == (HOPPER, NEAR, HOPPER_64)
    assert found["sm80"].kernels == (AMPERE_64, AMPERE_32)
    assert found["sm90"].evidence["median_ms"] == pytest.approx(0.3, rel=0.05)
    assert found["sm90"].evidence["memory_bytes"] == int(0.3 * 2**20)
    assert found["sm80"].evidence["behind"] == HOPPER
    assert found["sm80"].evidence["objective"] == "time"
    assert not {"median_ms", "joules", "memory_bytes"} & set(found["sm80"].evidence)


def test_every_measured_family_says_its_own_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [0.3, 0.9, 0.9, 0.306, 0.9]
    found = tuned(tmp_path, monkeypatch, times, "--objective", "time=2,energy=1")
    for family, name, ms in (("sm90", HOPPER, 0.3), ("sm80", AMPERE_64, 0.306)):
        evidence = found[family].evidence
        assert found[family].kernels[0] == name
        assert evidence["objective"] == "time=2,energy=1"
        assert evidence["joules"] == pytest.approx(ms, rel=0.01)
        assert evidence["memory_bytes"] == int(ms * 2**20)


def test_switches_are_compared_within_a_family() -> None:
    lazy, exact = (
        parse_kernel_name_into_config(f"flash_fwd_sm90_fp16_d128_m128_n128_g2_b2_q1_{words}")
        for words in ("lazy_overlap_pingpong", "overlap_pingpong")
    )
    rows = [row(AMPERE_64, 2.0), row(lazy.short_form(), 1.0), row(exact.short_form(), 1.25)]
    (worth,) = worth_of_switches(by_problem(map(Row.from_json, rows)))
    assert worth.label() == "max_policy 0 → 1" and worth.ratios == (0.8,)


def test_parts_hold_every_kernel_of_both_families_once(tmp_path: Path) -> None:
    words = ("prog", "hopper-smoke", "ampere-bwd", "hopper-bwd", "serve", "hopper-serve",
             "mla", "hopper-mla")  # fmt: skip
    configs = [config for word in words for config in get_kernel_configs(word)]
    manifest = generate(tmp_path / "generated", configs, configs_per_unit=2)
    parts = split(manifest, "generated", 3, 2)
    held = [config for part in parts for config in part.configs]
    assert len(parts) > 1 and len(held) == len(configs) and set(held) == set(configs)
    assert {config.FAMILY for config in held} == set(FAMILIES)
    for part in parts:
        registry = render_registry(part.configs)
        assert all(config.kernel_name() in registry for config in part.configs)
