"""The tuning table: its schema, who is asked first, and writers that do not lose each other's."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import TuningTableError, tuned_config, tuning, tuning_table
from flash_attention.tuning import tuned_choice, user_table
from flash_attention.tuning_table import Entry, merge, read_table, update_table
from flash_helpers.kernel_configs import (
    DType,
    get_kernel_configs,
    has_general_kernel,
    parse_sm80_name,
)

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = ROOT / "flash_attention/tuning_default.json"
TUNE = [c.short_form() for c in get_kernel_configs("tune") if c.dtype is DType.FP16]
WIDE = next(k for k in TUNE if parse_sm80_name(k).B_r == 128)
NARROW = next(k for k in TUNE if parse_sm80_name(k).B_r == 64)
UNBUILDABLE = NARROW.replace(", 4): ", ", 8): ")
GENERAL_WIDE, GENERAL_NARROW = (
    next(k for k in TUNE if (c := parse_sm80_name(k)).B_r == B_r and has_general_kernel(c))
    for B_r in (128, 64)
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FLASH_ATTENTION_TUNING", raising=False)
    monkeypatch.setattr(tuning, "built_variants", lambda: None)
    monkeypatch.setattr(tuning, "gpu_of", lambda device: ("NVIDIA H200", "9.0"))


def entry(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "gpu": "NVIDIA H200", "compute_capability": "9.0", "dtype": "FP16", "d_head": 128,
        "causal": False, "seq_min": 1, "seq_max": None, "kernels": [WIDE, NARROW], "evidence": {},
    }  # fmt: skip
    return {**known, **changes}


def write(path: Path, *entries: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "entries": list(entries)}))
    return path


def test_the_packaged_table_is_good_and_knows_what_was_recorded() -> None:
    entries = read_table(PACKAGED)
    assert {(e.dtype, e.d_head) for e in entries} == {
        (dtype, d) for dtype in ("FP16", "BF16") for d in (64, 96, 128, 192, 256)
    }
    for e in entries:
        assert e.gpu == "NVIDIA H200" and e.evidence["matmul_tflops"] > 200
    for causal, seq_len, blocks in [
        (False, 512, (128, 128)), (False, 4096, (192, 64)), (True, 2048, (192, 64)),
    ]:  # fmt: skip
        hopper = flash_attention.tuned_config("fp16", 128, seq_len, causal=causal)
        assert hopper.blocks() == blocks and hopper.FAMILY == "sm90"
    config = flash_attention.tuned_config("fp16", 128, 4096, family="sm80")
    assert config.short_form() == (
        "(FP16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_0_tiles+buffer+opt_softmax"
    )
    assert tuned_config(torch.bfloat16, 64, 1024).dtype is DType.BF16
    for seq_len in (64, 512, 1000 * 64, 2**20):  # a kernel for every length that has one
        assert seq_len % tuned_config(DType.FP16, 128, seq_len, family="sm80").blocks()[0] == 0


def test_the_first_kernel_that_fits_the_lengths_is_taken(tmp_path: Path) -> None:
    table = write(tmp_path / "t.json", entry(seq_max=2047), entry(seq_min=2048, kernels=[NARROW]))
    assert tuned_config("fp16", 128, 1024, table=table).short_form() == WIDE
    assert tuned_config("fp16", 128, 1024 + 64, table=table).short_form() == NARROW
    assert tuned_config("fp16", 128, 1024, 1024 + 64, table=table).short_form() == WIDE
    assert tuned_config("fp16", 128, 2048, table=table).short_form() == NARROW
    with pytest.raises(LookupError, match=r"d_head 80, .*they know BF16 128, BF16 128 causal"):
        tuned_config("fp16", 80, 1024)


def test_other_problems_get_the_first_kernel_that_is_general(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not has_general_kernel(parse_sm80_name(NARROW))
    ranked = [NARROW, GENERAL_WIDE, GENERAL_NARROW]
    table = write(tmp_path / "t.json", entry(kernels=ranked), entry(gpu="A100", kernels=[NARROW]))
    assert tuned_config("fp16", 128, 1024, table=table).short_form() == NARROW
    for lengths, causal in (((1000,), False), ((1024, 1000), False), ((1024,), True), ((1,), True)):
        found = tuned_config("fp16", 128, *lengths, causal=causal, table=table)
        assert found.short_form() == GENERAL_WIDE
    symbols = [parse_sm80_name(kernel).kernel_name() for kernel in ranked]
    whole, both = ("whole",), ("whole", "any")
    built = dict(zip(symbols, (whole, whole, both), strict=True))  # of WIDE the general is missing
    monkeypatch.setattr(tuning, "built_variants", lambda: built)
    assert tuned_config("fp16", 128, 1000, table=table).short_form() == GENERAL_NARROW
    assert tuned_config("fp16", 128, 1000, table=table, device="cpu").short_form() == GENERAL_WIDE
    monkeypatch.setattr(tuning, "built_variants", lambda: dict.fromkeys(built, whole))
    with pytest.raises(LookupError, match="multiples of its blocks, without causal"):
        tuned_config("fp16", 128, 1000, table=table)
    with pytest.raises(LookupError, match="128, sequences 1024 and 1024, causal: they know"):
        tuned_config("fp16", 128, 1024, causal=True, table=table)


def test_what_was_measured_with_general_kernels_keeps_its_order(tmp_path: Path) -> None:
    """At 1088, a multiple of 64, the narrow one runs its kernel for whole blocks; the wide one,
    general there, was faster when that was measured."""
    ranked = [GENERAL_WIDE, GENERAL_NARROW]
    for measured_at, expected in (
        (1088, GENERAL_WIDE), (1000, GENERAL_WIDE), (1024, GENERAL_NARROW), (None, GENERAL_NARROW),
        ("1088", GENERAL_NARROW), (True, GENERAL_NARROW), (0, GENERAL_NARROW),
    ):  # fmt: skip
        evidence = {} if measured_at is None else {"measured_at": measured_at}
        table = write(tmp_path / f"{measured_at}.json", entry(kernels=ranked, evidence=evidence))
        found = tuned_config("fp16", 128, 1088, table=table)
        assert found.short_form() == expected, measured_at
        assert tuned_config("fp16", 128, 1024, table=table).short_form() == GENERAL_WIDE
        assert tuned_config("fp16", 128, 1000, table=table).short_form() == GENERAL_WIDE


def test_what_was_measured_with_the_mask_comes_first(tmp_path: Path) -> None:
    table = write(
        tmp_path / "t.json",
        entry(kernels=[GENERAL_WIDE]),
        entry(kernels=[GENERAL_NARROW], causal=True),
    )
    assert tuned_config("fp16", 128, 1024, table=table).short_form() == GENERAL_WIDE
    causal = tuned_config("fp16", 128, 1024, causal=True, table=table)
    assert causal.short_form() == GENERAL_NARROW


def test_who_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [
        str(PACKAGED),
        str(user_table()),
        str(tmp_path / "env.json"),
        str(tmp_path / "a.json"),
    ]
    assert tuned_choice("fp16", 128, 1024).table == tables[0]
    write(user_table(), entry())
    assert tuned_choice("fp16", 128, 1024).table == tables[1]
    monkeypatch.setenv("FLASH_ATTENTION_TUNING", str(write(Path(tables[2]), entry())))
    assert tuned_choice("fp16", 128, 1024).table == tables[2]
    assert tuned_choice("fp16", 128, 1024, table=write(Path(tables[3]), entry())).table == tables[3]
    # A measurement on this GPU is worth more than a named table's of another one.
    write(Path(tables[2]), entry(gpu="NVIDIA A100", compute_capability="8.0"))
    assert tuned_choice("fp16", 128, 1024).table == tables[1]
    monkeypatch.setattr(tuning, "gpu_of", lambda device: ("NVIDIA H100", "9.0"))
    choice = tuned_choice("fp16", 128, 1024)
    assert (choice.table, choice.reason) == (
        tables[1], "measured on a GPU of compute capability 9.0",
    )  # fmt: skip
    monkeypatch.setattr(tuning, "gpu_of", lambda device: ("", ""))
    assert tuned_choice("fp16", 128, 1024).reason == "measured on another GPU"


def test_only_kernels_of_this_build_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = parse_sm80_name(NARROW).kernel_name()
    monkeypatch.setattr(tuning, "built_variants", lambda: {symbol: ("whole",)})
    write(user_table(), entry())
    assert tuned_config("fp16", 128, 1024).short_form() == NARROW


def test_a_bad_table_of_the_users_is_said_and_a_bad_named_one_refused(tmp_path: Path) -> None:
    user_table().write_text("{")
    with pytest.warns(UserWarning, match="the user's tuning table is not used: .*not JSON"):
        assert tuned_choice("fp16", 128, 1024).table == str(PACKAGED)
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    with pytest.raises(TuningTableError, match="is not JSON"):
        tuned_config("fp16", 128, 1024, table=bad)
    with pytest.raises(FileNotFoundError):
        tuned_config("fp16", 128, 1024, table=tmp_path / "absent.json")


def test_a_table_that_changes_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", entry())
    assert tuned_config("fp16", 128, 1024, table=path).short_form() == WIDE
    write(path, entry(kernels=[NARROW]))
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1000))
    assert tuned_config("fp16", 128, 1024, table=path).short_form() == NARROW


def test_new_measurements_replace_those_of_the_same_subject_alone() -> None:
    old = [Entry(**entry(seq_max=100)), Entry(**entry(seq_min=101)), Entry(**entry(gpu="A100"))]
    new = [Entry(**entry(kernels=(NARROW,)))]
    assert [(e.gpu, e.seq_max, len(e.kernels)) for e in merge(old, new)] == [
        ("A100", None, 2), ("NVIDIA H200", None, 1),
    ]  # fmt: skip


def test_writers_do_not_lose_each_others_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow readers: without the lock, all but one would write over what they have not seen."""
    path = tmp_path / "deep" / "t.json"

    def read_slowly(path: Path) -> list[Entry]:
        found = read_table(path)
        time.sleep(0.1)
        return found

    update_table(path, [Entry(**entry())])
    monkeypatch.setattr(tuning_table, "read_table", read_slowly)
    writers = [
        threading.Thread(target=update_table, args=(path, [Entry(**entry(gpu=f"GPU {i}"))]))
        for i in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = {"NVIDIA H200", *(f"GPU {i}" for i in range(4))}
    assert {e.gpu for e in read_table(path)} == expected


def test_a_table_that_cannot_be_read_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"{ half a tab\xff")
    (note,) = update_table(path, [Entry(**entry())])
    assert "was moved to" in note
    assert (tmp_path / "t.json.corrupt").read_bytes() == b"{ half a tab\xff"
    assert len(read_table(path)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned_config("fp16", 128, 1024, table=path)


def test_a_second_damaged_table_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    damaged = [b"first", b"[" * 200_000, b"third"]
    for content in damaged:
        path.write_bytes(content)
        (note,) = update_table(path, [Entry(**entry())])
        assert "was moved to" in note and len(read_table(path)) == 1
    names = ("t.json.corrupt", "t.json.corrupt.2", "t.json.corrupt.3")
    assert [(tmp_path / name).read_bytes() for name in names] == damaged


def test_what_is_no_file_is_no_table(tmp_path: Path) -> None:
    """A FIFO would be waited for, /dev/zero read for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            tuned_config("fp16", 128, 1024, table=path)
        with pytest.raises(OSError, match=r"it is a (FIFO|device)"):
            update_table(path, [Entry(**entry())])
        assert not Path(f"{path}.lock").exists()
