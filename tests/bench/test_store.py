"""The result store: durable rows, resume, damage, two writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flash_lab.bench.records import decode, encode, fingerprint, head, row_key
from flash_lab.bench.store import StoreError, open_store, read_store

PY = Path(__file__).resolve().parents[2] / "py"


def record(kernel: str = "a", status: str = "ok", environment: str = "e1") -> dict[str, object]:
    return {
        "key": row_key(kernel, {"seq_len": 512, "seed": 1}, {"repeats": 2}),
        "kernel": kernel,
        "provider": "ours",
        "status": status,
        "environment_fingerprint": environment,
        "samples_ms": [1.25, 1.5],
    }


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    with open_store(path, resume=False) as store:
        row = store.append(record())
        assert read_store(path).rows == [row]  # visible before the store is closed
    assert row.samples_ms == [1.25, 1.5] and b'"schema":1' in path.read_bytes() and row.time
    assert not os.access(tmp_path / "deep" / "rows.jsonl.corrupt", os.F_OK)


def test_each_append_is_forced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor))
    with open_store(tmp_path / "rows.jsonl", resume=False) as store:
        before = len(synced)
        store.append(record())
        store.append(record("b"))
        assert len(synced) == before + 2


def test_the_key_is_of_kernel_shape_and_policy_but_not_of_the_seed() -> None:
    key = row_key("a", {"seq_len": 512, "seed": 1}, {"repeats": 2})
    assert key == row_key("a", {"seed": 9, "seq_len": 512}, {"repeats": 2})
    others = [
        row_key("b", {"seq_len": 512}, {"repeats": 2}),
        row_key("a", {"seq_len": 1024}, {"repeats": 2}),
        row_key("a", {"seq_len": 512}, {"repeats": 3}),
    ]
    assert len({key, *others}) == 4
    assert fingerprint({"gpu": "x", "torch": "2"}) == fingerprint({"torch": "2", "gpu": "x"})


def test_only_a_final_row_of_the_same_environment_is_found(tmp_path: Path) -> None:
    with open_store(tmp_path / "rows.jsonl", resume=False) as store:
        key = str(record()["key"])
        store.append(record(status="started"))
        assert store.find(key, "e1") is None
        store.append(record(status="launch_fail"))
        assert store.find(key, "e2") is None
        found = store.find(key, "e1")
        assert found is not None and found.status == "launch_fail"


def test_a_repeated_measurement_is_finished_once(tmp_path: Path) -> None:
    """The last final row of each key and environment, at its place in the file."""
    path = tmp_path / "rows.jsonl"
    with open_store(path, resume=False) as store:
        store.append(record("a", "launch_fail"))
        store.append(record("b"))
        store.append(record("a", environment="e2"))
        store.append(record("a", "started"))
        store.append(record("a"))
        store.append(record("b", "started"))  # begun again, never finished: the old row holds
        for contents in (store.contents, read_store(path)):
            finished = contents.finished()
            assert [(row.kernel, row.status) for row in finished] == [(k, "ok") for k in "baa"]
            assert [row.environment_fingerprint for row in finished] == ["e1", "e2", "e1"]
            assert len(contents.rows) == 6


def test_a_store_with_rows_needs_resume_and_names_what_was_running(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with open_store(path, resume=False) as store:
        store.append(record("a", "started"))
        store.append(record("a"))
        store.append(record("culprit", "started"))
    with (
        pytest.raises(StoreError, match="already has 3 rows: add --resume"),
        open_store(path, resume=False),
    ):
        pass
    with open_store(path, resume=True) as store:
        assert store.notes == [
            "culprit was running when the last sweep ended: it is measured again"
        ]
        assert store.find(str(record("a")["key"]), "e1") is not None


def _damage(path: Path, how: str) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "truncated":
        lines[2] = lines[2][:40]
    elif how == "no newline":
        lines[2] = lines[2][:-1]
    elif how == "changed digit":
        lines[1] = lines[1].replace(b"1.25", b"1.15")
    elif how == "zeros":
        lines[1] = b"\0" * 30 + b"\n"
    elif how == "not utf-8":
        lines[1] = b'{"a": "\xff"}\n'
    elif how == "another schema":
        lines[1] = encode(decode(lines[1]).to_json() | {"schema": 99})
    elif how == "glued":  # a torn line that the next sweep's first row ran into
        lines[1] = lines[1][:20] + lines[1]
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("how", "n_good"),
    [
        ("truncated", 2), ("no newline", 3), ("changed digit", 2), ("zeros", 2),
        ("not utf-8", 2), ("another schema", 2), ("glued", 2),
    ],
)  # fmt: skip
def test_damage_costs_its_own_line_only(tmp_path: Path, how: str, n_good: int) -> None:
    path = tmp_path / "rows.jsonl"
    with open_store(path, resume=False) as store:
        for kernel in "abc":
            store.append(record(kernel))
    _damage(path, how)
    before = path.read_bytes().split(b"\n")
    assert len(read_store(path).rows) == n_good
    with open_store(path, resume=True) as store:
        assert len(store.contents.rows) == n_good
        assert any("moved to" in note for note in store.notes) == (n_good == 2)
        store.append(record("d"))
    contents = read_store(path)
    assert len(contents.rows) == n_good + 1 and contents.bad == []
    if n_good == 2:
        aside = (tmp_path / "rows.jsonl.corrupt").read_bytes()
        assert any(line and line in aside for line in before[1:3])


def test_two_sweeps_cannot_write_one_store(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    code = (
        "import sys, time; from pathlib import Path; "
        "from flash_lab.bench.store import open_store\n"
        f"with open_store(Path({str(path)!r}), resume=True): print('held', flush=True); "
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": PY}
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        message = f"is being written by process {process.pid}"
        with pytest.raises(StoreError, match=message), open_store(path, resume=True):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with open_store(path, resume=True) as store:  # the lock ended with its holder
            store.append(record())
        assert len(read_store(path).rows) == 1
    finally:
        process.kill()


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "rows.jsonl", resume=False) as store:
        monkeypatch.setattr(os, "write", lambda descriptor, data: len(data) // 2)
        with pytest.raises(StoreError, match="No space left"):
            store.append(record())


def test_an_unreadable_store_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        read_store(tmp_path / "absent.jsonl")
    with pytest.raises(StoreError, match="Is a directory"), open_store(tmp_path, resume=True):
        pass


def test_the_head_of_an_error_is_short_and_nan_is_not_json() -> None:
    text = "\n".join(["CUDA error: an illegal memory access", *["x" * 400] * 9])
    assert head(text).startswith("CUDA error") and len(head(text)) <= 600
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(record() | {"samples_ms": [float("nan")]})
    assert json.loads(encode(record()))["kernel"] == "a"
