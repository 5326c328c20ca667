"""Damaged files, and what is no file, for everything that reads what it wrote: each reader raises
what it says it raises, and never waits or reads for ever."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_attention.tuning_table import TuningTableError, read_table
from flash_helpers.base.safe_read import (
    MOST_LEVELS,
    check_json,
    parse_json,
    parse_toml,
    read_regular,
)
from flash_helpers.build.report import load_allowed_spills
from flash_helpers.codegen import load_manifest
from flash_helpers.compilers.errors import BuildError
from flash_lab.bench import regimes_table
from flash_lab.bench.runs import RunError, rows_of
from flash_lab.bench.store import StoreError, contents_of, open_store, read_store
from flash_lab.sass import history
from flash_lab.sass.disassembler import SassError
from flash_lab.steps_report.data import ReportError, read_counters, read_speeds
from tests.acceptance.repeats import read_ncu
from tests.properties import given, st

BRACKETS = "[" * 200_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BRACKETS, "nested more than 50"), ('{"a":' * 200_000, "nested more than 50"),
        ("[" * 51 + "]" * 51, "nested more than 50"), ("[NaN]", "nan is not a finite"),
        ("[1e999]", "inf is not a finite"), ("-Infinity", "-inf is not a finite"),
        (r'{"\ud800": 1}', "half a surrogate pair"), (b"\xff", "can't decode"), ("", "Expecting"),
        ("9" * 5000, "4300 digits"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_a_value_error(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(JSON)
def test_what_is_json_comes_back(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    check_json(value)


def test_limits_are_for_what_is_beyond_them() -> None:
    assert parse_json("[" * (MOST_LEVELS - 1) + "]" * (MOST_LEVELS - 1))
    assert parse_json("[NaN, Infinity]", finite=False)[1] == float("inf")
    with pytest.raises(ValueError, match="a set is not JSON"):
        check_json({"a": [{1, 2}]})
    assert parse_toml("a = [1]") == {"a": [1]}
    with pytest.raises(ValueError, match=r"nested|exceeds"):
        parse_toml(f"a = {BRACKETS}")


def special(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "link").symlink_to("/dev/zero")
    return {
        "pipe": folder / "pipe", "zero": Path("/dev/zero"), "full": Path("/dev/full"),
        "link": folder / "link", "loop": folder / "loop", "folder": folder,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "zero", "full", "link", "loop", "folder"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    path = special(tmp_path)[kind]
    with pytest.raises(OSError, match=r"not a regular file|symbolic links|directory"):
        read_regular(path)
    for reader, errors in READERS.values():
        with pytest.raises((*errors, OSError)):
            reader(path)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link") == b"content"


def manifest(path: Path) -> object:
    """Of a folder whose manifest.json leads to `path`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "manifest.json").symlink_to(path)
        return load_manifest(Path(folder))


def shown(path: Path) -> object:
    return regimes_table.show([path], 1.05)


# Each reader, and what it raises for what it did not write.
READERS: dict[str, tuple[Callable[[Path], object], tuple[type[Exception], ...]]] = {
    "run": (rows_of, (RunError,)),
    "table": (read_table, (TuningTableError,)),
    "manifest": (manifest, (ValueError,)),
    "regimes": (shown, (ValueError,)),
    "history": (history.read, (ValueError, SassError)),
    "ncu": (read_ncu, (RunError,)),
    "counters": (read_counters, (ReportError,)),
    "speeds": (read_speeds, (ReportError,)),
    "spills": (load_allowed_spills, (BuildError,)),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "content",
    [
        BRACKETS.encode(), b'{\n "provenance": ' + BRACKETS.encode(),
        b'{\n "provenance": 3, "rows": 4}', b'{\n "provenance": {}, "rows": [[]]}',
        b'{\n "provenance": {}, "rows": [{"status": "ok", "name": [], "samples_ms": 3}]}',
        f"a = {BRACKETS}".encode(), b"\xff\xfe\x00", b"[]", b"3", b'"text"', b"null", b"NaN",
        b'{"schema": 1, "entries": 3}', b'{"schema": true, "entries": []}',
        b'{"schema": 1, "commit": 3, "date": "x", "entries": []}',
        b'{"provider": "ours", "dtype": 3}', b"status,symbol\nok," + b"x" * 200_000 + b"\n",
        b"status,symbol,seq_len,duration_ns,cycles\nok,a,512,nan,3\n", b"a,b\n1\n",
    ],
)  # fmt: skip
def test_every_reader_refuses_what_is_damaged(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    reader, errors = READERS[name]
    try:
        found = reader(path)
    except errors:
        return
    # Lines that are no rows are left out: there is nothing in it, and that is said.
    if name == "run":
        rows, notes = rows_of(path)
        assert (rows, len(notes)) == ([], len(content.splitlines()))
    else:
        assert (name, found) in (("regimes", 4), ("spills", []))


@given(st.binary(max_size=400))
def test_a_store_takes_any_bytes(data: bytes) -> None:
    contents = contents_of(data)
    assert contents.rows == [] or data.strip()
    assert len(contents.left_out()) == len(contents.bad)


@pytest.mark.parametrize("kind", ["pipe", "zero", "full", "link", "loop", "folder"])
def test_a_store_is_a_regular_file_or_not_there(kind: str, tmp_path: Path) -> None:
    path = special(tmp_path)[kind]
    before = set(tmp_path.iterdir())
    message = r"cannot write .*(link|regular|directory)"
    with pytest.raises(StoreError, match=message), open_store(path, resume=True):
        pass
    assert set(tmp_path.iterdir()) == before and not Path(f"{path}.lock").exists()
    with pytest.raises(StoreError, match="cannot read"):
        read_store(path)


def test_what_lies_beside_a_store_is_not_waited_for(tmp_path: Path) -> None:
    store = tmp_path / "rows.jsonl"
    store.write_bytes(b"damaged\n")
    os.mkfifo(tmp_path / "rows.jsonl.corrupt")
    with pytest.raises(StoreError, match="cannot write"), open_store(store, resume=True):
        pass
    assert store.read_bytes() == b"damaged\n"
    os.mkfifo(tmp_path / "other.jsonl.lock")
    with (
        pytest.raises(StoreError, match="cannot write"),
        open_store(tmp_path / "other.jsonl", resume=True),
    ):
        pass
