"""The measuring tools on kernels of both families, odd lengths and the causal mask; with the fake
backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flash_attention.tuning_table import TuningTableError, merge, parse_table, read_table
from flash_helpers.kernel_configs import (
    DType,
    get_hopper_kernel_configs,
    get_kernel_configs,
    has_general_kernel,
    parse_kernel_name_into_config,
)
from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench import autotune_cli, pt_cli
from flash_lab.bench.landscape import worth_of_switches
from flash_lab.bench.results import by_problem
from flash_lab.bench.row import Row
from flash_lab.bench.store import read_store
from flash_lab.correctness.selection import partition

HERE = Path(__file__).resolve().parent
BACKEND = "fake_backend:FakeBackend"
HOPPER = [
    config.short_form()
    for config in get_hopper_kernel_configs()
    if (config.dtype, config.d_head) == (DType.FP16, 128)
]
QUICK = ["--num_repeats", "4", "--num_warmups", "0", "--target_noise", "0"]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HERE.parents[1] / 'py'}:{HERE}")
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"fa3": "absent", "fa4": "absent"}))


def bench(tmp_path: Path, *arguments: str) -> list[Row]:
    out = tmp_path / "rows.jsonl"
    always = [*QUICK, "--providers", "ours", "--no_ceilings", "--out", str(out)]
    status = pt_cli.main([*always, *arguments], BACKEND)
    assert status == 0
    return read_store(out).finished()


def test_every_kernel_that_a_build_has_is_timed_at_any_length(tmp_path: Path) -> None:
    """Of the Ampere family those with a general kernel, and the rows say that it was that one."""
    rows = bench(tmp_path, "--kernels", "hopper;prog", "--seq_lens", "1000")
    general = [c for c in get_kernel_configs("prog") if has_general_kernel(c)]
    timed = {row.kernel: row.symbol for row in rows if row.status == "ok"}
    assert set(timed) == {*HOPPER, *(c.short_form() for c in general)}
    for config in general:
        assert timed[config.short_form()] == config.symbol(Variant.ANY)
    skipped = {row.kernel: row.error for row in rows if row.status == "skipped"}
    assert len(skipped) == len(get_kernel_configs("prog")) - len(general)
    assert set(skipped.values()) == {
        "sequence 1000 is not divisible by its B_r = 64, and no build has a general kernel of it"
    }


def test_causal(tmp_path: Path) -> None:
    rows = bench(tmp_path, "--kernels", "hopper;prog", "--seq_lens", "1024", "--causal")
    assert all(row.problem.causal is True for row in rows)
    general = {c.short_form() for c in get_kernel_configs("prog") if has_general_kernel(c)}
    timed = {row.kernel for row in rows if row.status == "ok"}
    assert timed == {*HOPPER, *general}
    symbols = {str(row.symbol) for row in rows if row.kernel in general}
    assert all(symbol.endswith("_general") for symbol in symbols)
    reasons = {str(row.error) for row in rows if row.status == "skipped"}
    assert reasons == {"no build has a kernel of it with the causal mask"}
    (result,) = by_problem(rows)
    assert ", causal, seed" in result.title()
    best = result.ranked[0]
    flop = 2 * 16 * best.problem.batch * 1024**2 * 128
    assert best.matmul_tflops == pytest.approx(flop / best.summary.median / 1e9)


def test_the_same_measurement_with_and_without_a_mask_is_two(tmp_path: Path) -> None:
    arguments = ["--kernels", HOPPER[0], "--seq_lens", "1024"]
    bench(tmp_path, *arguments)
    rows = bench(tmp_path, *arguments, "--causal", "--resume")
    assert [row.problem.causal for row in rows] == [False, True]
    assert len({row.key for row in rows}) == 2


def test_the_cost_and_name_of_a_causal_problem() -> None:
    plain = AttentionProblem.self_attention(DType.FP16, 2, 128, 4, 64)
    causal = AttentionProblem.self_attention(DType.FP16, 2, 128, 4, 64, causal=True)
    assert 2 * causal.matmul_flop() == plain.matmul_flop()
    assert 2 * causal.attn_flop() == plain.attn_flop()
    assert "causal" in str(causal) and "causal" not in str(plain)


def test_what_a_build_has_with_the_mask() -> None:
    kept, skipped = partition(get_kernel_configs("all"), 1024, causal=True)
    assert {c.FAMILY for c in kept} == {"sm80", "sm90"}
    assert all(has_general_kernel(c) or c.FAMILY == "sm90" for c in kept)
    forward = [i for i in skipped if not i.config.GRADIENTS and not i.config.SERVES]
    assert forward and all("causal" in item.reason for item in forward)


def tune(tmp_path: Path, *arguments: str, seq_len: int = 1024) -> Path:
    table = tmp_path / "tuning.json"
    store = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    status = autotune_cli.main(
        ["--no_build", "--coarse", "2", "--fine", "2", "--final", "6", "--seq_lens", str(seq_len),
         "--dtypes", "fp16", "--table", str(table), "--out", str(store), *arguments],
        BACKEND,
    )  # fmt: skip
    assert status == 0
    return table


def test_a_sweep_of_one_family_keeps_what_is_known_of_the_other(tmp_path: Path) -> None:
    tune(tmp_path, "--kernels", "prog")
    before = read_table(tmp_path / "tuning.json")
    tune(tmp_path, "--kernels", "hopper")
    entries = read_table(tune(tmp_path, "--kernels", "hopper", "--causal"))
    assert {(entry.family, entry.causal) for entry in entries} == {
        ("sm80", False), ("sm90", False), ("sm90", True),
    }  # fmt: skip
    assert before[0] in entries
    for entry in entries:
        families = {parse_kernel_name_into_config(kernel).FAMILY for kernel in entry.kernels}
        assert families == {entry.family}


def test_a_sweep_of_both_makes_an_entry_for_each(tmp_path: Path) -> None:
    table = tune(tmp_path, "--kernels", "hopper-smoke;prog")
    entries = {entry.family: entry for entry in read_table(table)}
    assert set(entries) == {"sm80", "sm90"}
    numbers = ["median_ms" in entry.evidence for entry in entries.values()]
    assert any(numbers), "the winner's figures stand in its family's entry"


def test_a_length_that_no_block_divides_is_tuned_with_general_kernels(tmp_path: Path) -> None:
    (entry,) = read_table(tune(tmp_path, "--kernels", "prog", seq_len=1000))
    assert entry.measured_at == 1000
    assert all(has_general_kernel(config) for config in entry.configs)


def test_an_entry_has_a_kernel_for_every_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where those without a general kernel are the fastest by far."""
    slow = {c.short_form(): 50.0 for c in get_kernel_configs("prog") if has_general_kernel(c)}
    monkeypatch.setenv("FAKE_SPEEDS", json.dumps({f"{k}|": ms for k, ms in slow.items()}))
    (entry,) = read_table(tune(tmp_path, "--kernels", "prog"))
    assert not has_general_kernel(entry.configs[0])
    assert entry.kernels[-1] in slow


def test_an_entry_has_one_family(tmp_path: Path) -> None:
    table = tune(tmp_path, "--kernels", "prog")
    data = json.loads(table.read_text())
    data["entries"][0]["kernels"].append(HOPPER[0])
    with pytest.raises(TuningTableError, match="kernels of sm80 and sm90: one family an entry"):
        parse_table(json.dumps(data), "a test")
    assert merge([], read_table(table)) == read_table(table)


def test_switches_of_both_families_are_compared(tmp_path: Path) -> None:
    rows = bench(tmp_path, "--kernels", "hopper;prog", "--seq_lens", "1024")
    worth = {item.switch for item in worth_of_switches(by_problem(rows))}
    assert {"max_policy", "ping_pong", "optimized_softmax"} <= worth
