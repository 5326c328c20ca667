"""The page: self-contained, well-formed, everything said; and the landscape's arithmetic."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench.landscape import worth_of_switches
from flash_lab.bench.records import encode, row_key
from flash_lab.bench.report_cli import main
from flash_lab.bench.results import by_problem
from flash_lab.bench.row import Json, Row
from flash_lab.bench.runs import rows_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "docs/results/raw/2026-11-20-h200-tune-d128.json"
PROG = [config.short_form() for config in get_kernel_configs("prog")]


def row(kernel: str, ms: float, provider: str = "ours", **more: Any) -> Json:
    shape = {
        "dtype": "FP16", "d_head": 128, "seq_len": 1024, "batch": 16, "n_heads": 16,
        "n_kv_heads": 16, "causal": False, "seed": 1,
    }  # fmt: skip
    environment = {
        "gpu": "NVIDIA H200", "compute_capability": "9.0", "gpu_sms": 132,
        "top_sm_clock": "1980 MHz",
    }  # fmt: skip
    return {
        "status": "ok", "provider": provider, "kernel": kernel, "shape": shape, "error": "",
        "key": row_key(kernel, shape, {}), "samples_ms": [ms, ms], "bursts": [1, 1],
        "environment": environment, "environment_fingerprint": "e", "command": "python x <y>",
        **more,
    }  # fmt: skip


def store(path: Path, *rows: Json) -> Path:
    path.write_bytes(b"".join(encode(r) for r in rows))
    return path


class Page(HTMLParser):
    """Collects text and links, and checks that what is opened is closed."""

    VOID = ("meta", "img", "link", "br", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.sources: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_needs_nothing_from_elsewhere_and_says_everything(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [
        row("fa2", 0.8, "fa2", label="PyTorch FlashAttention-2"),
        *(row(kernel, 1.0 - 0.05 * i) for i, kernel in enumerate(PROG)),
        row("fa3", 1.0, "fa3", status="skipped", error="not installed"),
        row(PROG[0].replace("FP16", "BF16"), 0.1, status="wrong", error="<5> rows are wrong"),
    ]
    run, out = store(tmp_path / "run.jsonl", *rows), tmp_path / "page.html"
    assert main([str(run), "--out", str(out), "--pngs", str(tmp_path / "png")]) == 0
    text = out.read_text()
    page = Page(text)
    assert len(page.sources) == 3
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert not re.search(r"url\(|@import|<script|https?://", text)
    assert 'name="viewport"' in text
    said = "".join(page.text)
    for words in (*PROG, "<5> rows are wrong", "not installed", "NVIDIA H200", "python x <y>"):
        assert words in said
    pngs = sorted(path.name for path in (tmp_path / "png").iterdir())
    assert pngs == ["roofline.png", "switches.png", "throughput-fp16-d128.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (tmp_path / "png").iterdir())
    first = out.read_bytes()
    assert main([str(run), "--out", str(out)]) == 0
    assert out.read_bytes() == first  # no date, no chance


def test_a_regression_is_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    def steady(ms: float) -> Json:
        samples = [ms * (1 + 0.001 * (i % 5)) for i in range(20)]
        return row(PROG[0], ms, samples_ms=samples, bursts=[1] * 20)

    base = store(tmp_path / "base.jsonl", steady(1.0))
    new = store(tmp_path / "new.jsonl", steady(1.1))
    out = tmp_path / "page.html"
    assert main([str(new), "--base", str(base), "--out", str(out)]) == 0
    assert "slower: REGRESSION" in out.read_text()


def test_unusable_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = ["--out", str(tmp_path / "page.html")]
    assert main([str(tmp_path / "absent"), *out]) == 2
    assert main([str(store(tmp_path / "empty.jsonl")), *out]) == 2
    errors = capsys.readouterr().err
    assert "No such file" in errors and "none of its 0 rows is ok" in errors
    assert not (tmp_path / "page.html").exists()


def test_what_a_switch_is_worth() -> None:
    """The progression adds swizzling to step 1, and that alone."""
    rows = [row(PROG[0], 4.0), row(PROG[1], 1.0), row(PROG[6], 0.9)]
    (worth,) = worth_of_switches(by_problem(map(Row.from_json, rows)))
    assert worth.switch == "swizzled" and worth.label() == "swizzled"
    assert worth.ratios == (0.25,) and worth.middle == pytest.approx(0.25)


def test_the_landscape_of_the_recorded_sweep() -> None:
    rows, notes = rows_of(RECORDED)
    assert notes == [] and len(rows) == len(json.loads(RECORDED.read_text())["rows"])
    found = {worth.label(): worth for worth in worth_of_switches(by_problem(rows))}
    assert found["B_r 64 → 128"].middle < 0.85 < found["mma_double_buffer_loads"].middle
    assert len(found["optimized_softmax"].ratios) == 12 * 20


def test_of_a_tuners_passes_the_last_counts(tmp_path: Path) -> None:
    passes = [
        row("a", 2.0, policy={"stage": "coarse"}, key="1"),
        row("b", 3.0, policy={"stage": "coarse"}, key="2"),
        row("a", 1.0, policy={"stage": "final"}, key="3"),
    ]
    rows, notes = rows_of(store(tmp_path / "run.jsonl", *passes))
    assert [(r.kernel, r.samples_ms[0]) for r in rows] == [("b", 3.0), ("a", 1.0)]
    assert notes == ["1 rows of earlier passes are left out"]
