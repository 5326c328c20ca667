"""What a worker may say: figures that cannot be cost the row of their kernel, and what is no event
costs the kernel that ran. Neither ends the sweep."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench.events import MOST_BYTES, EventError, checked, parse_event, usable
from flash_lab.bench.pt_cli import main
from flash_lab.bench.ray_pool import RayPool
from flash_lab.bench.records import LAUNCH_FAIL, encode
from flash_lab.bench.store import read_store
from flash_lab.bench.supervisor import Supervisor, WorkerStartError
from tests.bench import fake_ray
from tests.bench.test_rows_of_any_kind import ANY
from tests.properties import given, st

HERE = Path(__file__).resolve().parent
BACKEND = "fake_backend:FakeBackend"
POLICY = {"warmups": 1, "repeats": 4, "cold_l2": False, "burst": 2}
PROG = [config.short_form() for config in get_kernel_configs("prog")]
GOOD = {"event": "result", "kernel": "bad", "status": "ok", "error": "", "samples_ms": [1.0]}
REQUEST: dict[str, Any] = {
    "shape": {"seq_len": 64, "seed": 1}, "policy": POLICY,
    "candidates": [{"provider": "ours", "kernel": name} for name in ("first", "bad", "last")],
}  # fmt: skip


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def measure() -> tuple[dict[str, dict[str, Any]], int]:
    """Results by kernel, and how many workers it took."""
    results: dict[str, dict[str, Any]] = {}
    with Supervisor(BACKEND) as supervisor:
        for event in supervisor.measure(REQUEST):
            if event["event"] == "result":
                assert event["kernel"] not in results
                results[event["kernel"]] = event
    assert set(results) == {"first", "bad", "last"}
    assert results["first"]["status"] == results["last"]["status"] == "ok"
    return results, supervisor.n_started


SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"samples_ms": [1.0, math.nan]}, "samples_ms[1] is nan: expected 1e-06 to 1e+07 ms"),
    ({"samples_ms": [math.inf]}, "samples_ms[0] is inf"), ({"samples_ms": [0]}, "[0] is 0"),
    ({"samples_ms": [-1.0]}, "[0] is -1.0"), ({"samples_ms": [1e300]}, "[0] is 1e+300"),
    ({"samples_ms": ["1"]}, "[0] is '1'"), ({"samples_ms": [True]}, "[0] is True"),
    ({"samples_ms": "fast"}, "samples_ms is 'fast': expected a list"),
    ({"samples_ms": []}, "it is ok, but has no samples_ms"), ({"status": "fine"}, "status is 'fi"),
    ({"status": "started"}, "status is 'started': expected one of ok, wrong"),
    ({"error": None}, "it has no error"), ({"bursts": [3]}, "bursts add up to 3"),
    ({"throttled": {"1": "x"}}, "throttled names sample '1' of 1"),
    ({"joules": [math.nan]}, "joules is a list of 1: expected"), ({"registers": -1}, "registers"),
    ({"registers": 10**400}, "registers is a number of 1329 bits"),
    ({"clocks": {"sm_mhz": math.inf}}, "clocks is a dict of 1"),
    ({"of_its_own": {"deep": [math.nan]}}, "nan is not a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), SPOILT)
def test_figures_that_cannot_be_cost_their_row(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(GOOD | changes) + "\n"
    monkeypatch.setenv("FAKE_LINES", json.dumps({"bad": line}))
    results, n_workers = measure()
    assert results["bad"]["status"] == "launch_fail"
    error = results["bad"]["error"]
    assert error.startswith("the worker's row cannot be used: ") and message in error
    assert "samples_ms" not in results["bad"] and n_workers == 1
    encode({"key": "k", "provider": "ours", **results["bad"]})


@pytest.mark.parametrize("field", ["registers", "joules", "label", "note", "of_its_own"])
def test_a_backends_own_nan_costs_its_row(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ADDED", json.dumps({"bad": {field: math.nan}}))
    results, n_workers = measure()
    assert results["bad"]["status"] == "launch_fail" and n_workers == 1
    assert "cannot be used" in results["bad"]["error"] and "nan" in results["bad"]["error"]


@pytest.mark.parametrize("ms", ["nan", "inf", "0", "-1", "1e300", "1e-300"])
def test_a_time_that_cannot_be_is_the_failure_of_its_kernel(
    ms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the one that came last, when sums were made of it."""
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"bad": f"takes {ms}"}))
    results, n_workers = measure()
    assert results["bad"]["status"] == "launch_fail" and n_workers == 2
    assert "ms: 1e-06 to 1e+07 are possible" in results["bad"]["error"]


GARBAGE = [
    ("hello\n", "a line that is not JSON: b'hello'"), ("[" * 200_000 + "\n", "nested more than"),
    ("[]\n", "no event: []"), ('{"event": []}\n', "no event: {'event': []}"),
    ('{"event": "applause"}\n', "no event: "), ('{"event": "result"}\n', "`result` without kernel"),
    ('{"event": "running", "kernel": "bad", "phase": 3}\n', "`running` without phase"),
    ("\udcff\n".encode(errors="surrogateescape").decode("latin-1"), "not JSON"),
    ("x" * (MOST_BYTES + 70_000), "a line of more than 16 MB"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_what_is_no_event_costs_the_kernel_that_ran(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line, message = GARBAGE[number]
    if len(line) < 100_000:
        monkeypatch.setenv("FAKE_LINES", json.dumps({"bad": line}))
    else:  # more than an environment takes
        (tmp_path / "line").write_text(line)
        monkeypatch.setenv("FAKE_LINES", json.dumps({"bad": f"@{tmp_path / 'line'}"}))
    results, n_workers = measure()
    assert results["bad"]["status"] == "launch_fail" and n_workers == 2
    error = results["bad"]["error"]
    assert error.startswith("the worker sent ") and message in error and len(error) <= 600


def test_events_of_kernels_that_nobody_asked_for_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [GOOD | {"kernel": "stranger"},
             {"event": "running", "kernel": "stranger", "phase": "check"},
             {"event": "ready", "environment": {}}]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    monkeypatch.setenv("FAKE_LINES", json.dumps({"bad": text}))
    results, n_workers = measure()
    assert results["bad"]["status"] == "ok" and n_workers == 1


def test_an_environment_that_cannot_be_is_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"clock": math.nan}, {"deep": {"er": 1}}):
        monkeypatch.setenv("FAKE_ENVIRONMENT", json.dumps(wrong))
        with pytest.raises(WorkerStartError, match="the worker sent `ready`, but environment "):
            measure()


def test_a_sweep_goes_on_says_it_and_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = {"kernel": PROG[1], "shape": {"seq_len": 7}, "key": "x", "provider": "fa2",
              "environment": {}, "schema": 9, "crc32": 1, "time": "never"}  # fmt: skip
    lines = {f"{PROG[0]}|": GOOD | {"kernel": PROG[0], "samples_ms": [math.nan]},
             f"{PROG[1]}|": GOOD | forged}  # fmt: skip
    encoded = {part: json.dumps(line) + "\n" for part, line in lines.items()}
    monkeypatch.setenv("FAKE_LINES", json.dumps(encoded))
    arguments = ["--kernels", "prog", "--num_repeats", "4", "--target_noise", "0", "--no_ceilings"]
    arguments += ["--seq_lens", "512", "--providers", "ours", "--out", str(tmp_path / "r.jsonl")]
    assert main(arguments, BACKEND) == 3
    assert f"launch_fail: {PROG[0]}: the worker's row cannot be used" in capsys.readouterr().out
    contents = read_store(tmp_path / "r.jsonl")
    rows = {row.kernel: row for row in contents.finished()}
    assert len(rows) == len(PROG) and contents.bad == []
    assert [row.status for row in rows.values()].count("ok") == len(PROG) - 1
    # What a row is of is said by who asked for it.
    assert rows[PROG[1]].problem.seqlen_q == 512 and rows[PROG[1]].provider == "ours"
    assert rows[PROG[1]].environment["gpu"] == "Fake GPU" and rows[PROG[1]].time != "never"


def over_ray(
    monkeypatch: pytest.MonkeyPatch, *said: Any, environment: Any = None
) -> dict[str, dict[str, Any]]:
    """Results by kernel of a worker that says this about `bad`, and is good about the others."""

    def say(request: Any) -> Iterator[Any]:
        for item in request["candidates"]:
            yield from said if item["kernel"] == "bad" else [GOOD | {"kernel": item["kernel"]}]

    monkeypatch.setitem(sys.modules, "ray", fake_ray.module(say, environment or {"gpu": "Fake"}))
    with RayPool(BACKEND, n_workers=1) as pool:
        events = list(pool.measure(REQUEST))
    return {event["kernel"]: event for event in events if event["event"] == "result"}


@pytest.mark.parametrize(("changes", "message"), SPOILT)
def test_the_same_over_ray(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = over_ray(monkeypatch, GOOD | changes)
    assert [results[name]["status"] for name in ("first", "bad", "last")] == [
        "ok", "launch_fail", "ok",
    ]  # fmt: skip
    assert message in results["bad"]["error"] and results["bad"]["worker"].startswith("far ")


@pytest.mark.parametrize("said", [None, [], {"event": "result"}, {"event": object()}, 3])
def test_what_is_no_event_over_ray(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    results = over_ray(monkeypatch, said)
    assert results["bad"]["status"] == "launch_fail"
    assert "the Ray worker on far worker 0 sent" in results["bad"]["error"]
    assert results["first"]["status"] == results["last"]["status"] == "ok"


def test_objects_that_are_not_json_over_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    results = over_ray(monkeypatch, GOOD | {"of_its_own": {1, 2}})
    assert "a set is not JSON" in results["bad"]["error"]
    with pytest.raises(WorkerStartError, match="the Ray worker on far sent `ready`, but"):
        over_ray(monkeypatch, GOOD, environment={"clock": math.nan})


@given(st.dictionaries(st.sampled_from(sorted(GOOD)) | st.text(max_size=8), ANY))
def test_any_event_is_refused_or_can_be_stored(fields: dict[str, Any]) -> None:
    try:
        event = usable(parse_event(json.dumps(GOOD | fields).encode()))
    except EventError as error:
        assert str(error)
        return
    if event["event"] == "result":
        own = {name: event[name] for name in event if name not in ("schema", "crc32")}
        encode(own | {"key": "k", "provider": "ours"})
        assert event["status"] == LAUNCH_FAIL or event == checked(GOOD | fields)
