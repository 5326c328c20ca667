"""Rows with a right checksum and whatever in them: nothing that reads a store ends in a traceback
or takes them for a result. Found with arbitrary JSON; what was found once stands by name."""

from __future__ import annotations

import lzma
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench import charts, compare_cli, report_cli
from flash_lab.bench.records import encode, row_key
from flash_lab.bench.row import Json, Row, problem_with
from flash_lab.bench.runs import rows_of
from flash_lab.bench.store import contents_of, open_store, read_store
from flash_lab.steps_report.data import ReportError, read_speeds
from flash_lab.ws_analysis import cli as ws_cli
from flash_lab.ws_analysis import measuring
from tests.acceptance import cli as acceptance_cli
from tests.acceptance import gate
from tests.properties import given, settings, st

ROOT = Path(__file__).resolve().parents[2]
RAW = ROOT / "docs/results/raw"
PROG = [config.short_form() for config in get_kernel_configs("prog")]
ENVIRONMENT = {
    "gpu": "NVIDIA H200", "compute_capability": "9.0", "gpu_sms": 132, "top_sm_clock": "1980 MHz",
}  # fmt: skip


def row(kernel: str, provider: str = "ours", **more: Any) -> Json:
    shape = {
        "dtype": "FP16", "d_head": 128, "seq_len": 1024, "batch": 16, "n_heads": 16,
        "n_kv_heads": 16, "causal": False, "seed": 1, "slowed_kernel": "",
    }  # fmt: skip
    return {
        "status": "ok", "provider": provider, "kernel": kernel, "shape": shape, "error": "",
        "key": row_key(kernel, shape, {}), "samples_ms": [1.0 + 0.01 * i for i in range(8)],
        "bursts": [2, 2, 2, 2], "throttled": {"1": "heat"}, "environment": ENVIRONMENT,
        "environment_fingerprint": "e", "command": "python x", "symbol": "s", "label": kernel,
        "clocks": {"sm_mhz": 1700, "watts": 600.0, "celsius": 60, "power_limited": 1.0},
        "policy": {"cold_l2": True, "stage": gate.stage_name("base", 0)}, "joules": [0.5],
        "memory_bytes": 1 << 20, "registers": 128, "blocks_per_sm": 2, "threads": 128,
        "spilled_bytes": 0, "shared_bytes": 1024, "parameters": {"BLOCK_M": 128}, "group": 0,
        "effective_sm_mhz": 1700.0, "loaded_sm_mhz": 1650.0, **more,
    }  # fmt: skip


CEILINGS = [
    row("matmul 4096", "ceiling", flop=10**12, shape={"dtype": "FP16", "seed": 1}),
    row("copy 256 MiB", "ceiling", bytes=10**9, shape={"dtype": "FP16", "seed": 1}),
]
BASE = [
    row("fa2", "fa2"), *map(row, PROG[:3]), row("fa3", "fa3", status="skipped", error="absent"),
    *CEILINGS,
]  # fmt: skip

NASTY: st.SearchStrategy[Any] = st.sampled_from([
    None, True, False, 0, -1, 10**400, 2**63, 1e308, -1e308, 1e-320, 0.5, "", "=1+1", "../../x",
    "ok", "nan", "\u0663", [], [[]], [None], [-1.0], [True], {}, {"a": {}}, {"1": 1}, {"-1": "x"},
    {"99999999999": "x"}, "x" * 500,
])  # fmt: skip
ANY = NASTY | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip
CHANGED = sorted(BASE[1])
INSIDE = [(outer, name) for outer in ("shape", "policy", "environment", "clocks", "parameters")
          for name in sorted(BASE[1][outer])]  # fmt: skip


@st.composite
def changed_rows(draw: st.DrawFn) -> list[Json]:
    """The rows of BASE, some with a field that is gone or holds anything."""
    rows = [dict(each) for each in BASE]
    for _ in range(draw(st.integers(1, 3))):
        target = rows[draw(st.integers(0, len(rows) - 1))]
        path = draw(st.sampled_from([(name,) for name in CHANGED] + INSIDE))
        *outer, name = path
        if outer and isinstance(target.get(outer[0]), dict):
            target[outer[0]] = target = dict(target[outer[0]])
        if draw(st.booleans()):
            target[name] = draw(ANY)
        else:
            target.pop(name, None)
    return rows


def store(rows: list[Json], folder: Path, name: str = "rows.jsonl") -> str:
    path = folder / name
    path.write_bytes(b"".join(encode(each) for each in rows))
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def no_pictures() -> Any:
    """Drawing takes a second each; what is drawn are the same rows as in the tables."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("throughput", "roofline", "switches"):
            patch.setattr(charts, name, lambda *_, **__: b"")
        patch.setattr(measuring, "plots", lambda *_: {})
        yield


MANY = settings(max_examples=150)


@MANY
@given(changed_rows())
def test_every_tool_reads_any_row(rows: list[Json]) -> None:
    pytest.importorskip("matplotlib")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        new, base = store(rows, folder), store(BASE, folder, "base.jsonl")
        for arguments in ([base, new], [new, base], ["--aa", new], [base, new, "--anchored"]):
            assert compare_cli.main([*arguments, "--partial"]) in (0, 1, 2)
        page = ["--out", str(folder / "page.html"), "--base", base]
        assert report_cli.main([new, *page]) in (0, 2)
        shown = ["--rows", new, "--results", str(folder / "ws")]
        for mode in ("benchmark", "analysis"):
            assert ws_cli.main(["--mode", mode, *shown]) in (0, 1, 2, 3, 4)
        for kind in ("gate", "repeat"):
            assert acceptance_cli.main([kind, "--evaluate", "--out", new]) in (0, 1, 4)
        with pytest.raises(ReportError):
            read_speeds(Path(new))
        before = Path(new).read_bytes()
        with open_store(Path(new), resume=True) as opened:
            n_bad = sum("line" in note for note in opened.notes)
        kept = Path(new).read_bytes().count(b"\n") + max(0, n_bad - 1)
        assert kept == before.count(b"\n")  # what was no row was moved aside, not dropped


@MANY
@given(st.dictionaries(st.sampled_from(CHANGED) | st.text(max_size=8), ANY))
def test_a_row_of_anything_is_a_row_or_a_bad_line(fields: dict[str, Any]) -> None:
    (line, rest) = encode(fields).split(b"\n")
    contents = contents_of(line)
    assert rest == b"" and len(contents.rows) + len(contents.bad) == 1


SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"samples_ms": [1.0, "2"]}, "samples_ms[1] is '2': expected 1e-06 to 1e+07 ms"),
    ({"samples_ms": [0]}, "samples_ms[0] is 0: "), ({"samples_ms": [True]}, "is True: expected"),
    ({"samples_ms": [1e300]}, "is 1e+300: expected"), ({"samples_ms": 3}, "a list of milliseconds"),
    ({"samples_ms": [10**400]}, "is a number of 1329 bits"),
    ({"bursts": [2, 2]}, "bursts add up to 4, but there are 8 samples"),
    ({"throttled": {"8": "heat"}}, "throttled names sample '8' of 8"),
    ({"shape": {**BASE[1]["shape"], "dtype": "../../x"}}, "an object with the sizes"),
    ({"shape": {**BASE[1]["shape"], "seq_len": 0}}, "an object with the sizes"),
    ({"clocks": {"sm_mhz": 1}}, "an object with sm_mhz, watts"),
    ({"environment": []}, "environment is a list of 0: expected an object of plain values"),
    ({"error": 3}, "error is 3: expected text"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), SPOILT)
def test_a_spoilt_row_is_left_out_and_said(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*BASE[:2], row(PROG[1], **changes), *BASE[3:]]
    assert message in problem_with(rows[2])
    new, base = store(rows, tmp_path), store(BASE, tmp_path, "base.jsonl")
    assert compare_cli.main([base, new]) == 2  # not 1: nothing is slower
    said = capsys.readouterr().err
    assert "line 3 is left out: " in said and message in said and "lacks 1 rows" in said
    with open_store(Path(new), resume=True) as opened:
        assert "1 unreadable line(s) moved to" in opened.notes[-1]
        assert len(opened.contents.rows) == len(BASE) - 1
    assert message.encode() in Path(f"{new}.corrupt").read_bytes()


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("shape", "it has no shape"), ("samples_ms", "it is ok, but has no samples_ms"),
        (("shape", "seed"), "its shape has no seed"),
    ],
)  # fmt: skip
def test_a_row_that_lacks_something_is_left_out_and_said(
    gone: str | tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = dict(row(PROG[1], bursts=[], throttled={}))
    if isinstance(gone, str):
        del spoilt[gone]
    else:
        spoilt["shape"] = {k: v for k, v in spoilt["shape"].items() if k != gone[1]}
    assert not problem_with(spoilt) and Row.from_json(spoilt).lacking() == message
    new = store([*BASE[:2], spoilt, *BASE[3:]], tmp_path)
    assert compare_cli.main([store(BASE, tmp_path, "base.jsonl"), new]) == 2
    assert f"a row of {PROG[1]} is left out: {message}" in capsys.readouterr().err


def test_a_line_of_brackets_costs_itself_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, base = store(BASE, tmp_path), store(BASE, tmp_path, "base.jsonl")
    with Path(new).open("ab") as file:
        file.write(b"[" * 200_000 + b"\n")
    assert compare_cli.main([base, new]) == 0
    assert f"line {len(BASE) + 1} is left out: not JSON (nested more" in capsys.readouterr().err
    with open_store(Path(new), resume=True) as opened:
        assert len(opened.contents.rows) == len(BASE)
    assert len(read_store(Path(new)).bad) == 0


def test_a_kernel_that_this_version_does_not_know_is_still_shown(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    new = store([*BASE, row("a kernel of tomorrow")], tmp_path)
    assert report_cli.main([new, "--out", str(tmp_path / "page.html")]) == 0
    assert "a kernel of tomorrow" in (tmp_path / "page.html").read_text()


def test_every_recorded_row_is_one() -> None:
    """All that GPUs have written into stores so far."""
    n = 0
    for path in RAW.glob("*.jsonl.xz"):
        data = lzma.decompress(path.read_bytes())
        if b'"crc32"' not in data[:100_000]:
            continue
        contents = contents_of(data)
        assert contents.bad == [], path
        assert all(each.lacking() == "" for each in contents.finished()), path
        n += len(contents.rows)
    assert n > 5000
    rows, notes = rows_of(RAW / "2026-11-20-h200-tune-d128.json")
    assert len(rows) > 100 and notes == []


def test_figures_stay_finite() -> None:
    """The greatest and the smallest that a row may hold."""
    sizes = dict.fromkeys(("batch", "n_heads", "n_kv_heads", "seq_len", "d_head"), 2**31)
    for ms in (1e-6, 1e7):
        extreme = row("a", samples_ms=[ms] * 8, shape={**BASE[1]["shape"], **sizes})
        assert not problem_with(extreme)
        with tempfile.TemporaryDirectory() as folder:
            path = store([extreme, row("b")], Path(folder))
            assert compare_cli.main(["--aa", path]) == 0
    assert math.isfinite(float(2**31) ** 5 / 1e-6)
