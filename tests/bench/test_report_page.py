"""The page in a real browser: at 1280 pixels and on a phone, with nothing from elsewhere."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flash_lab.bench.records import encode
from flash_lab.bench.report_cli import main
from tests.bench.chromium import Browser, browser, find_chromium
from tests.bench.report_rows import ceiling_rows, recorded_rows

ROOT = Path(__file__).resolve().parents[2]
DESKTOP, PHONE = (1280, 900), (390, 844)

# Everything that a reader of this width cannot see, or can hardly read. A table may be wider than
# the window: it scrolls in its own box.
FAULTS = """(() => {
  document.querySelectorAll('details').forEach(d => d.open = true);
  const found = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width)
    found.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${width}`);
  for (const e of document.body.querySelectorAll('*')) {
    const box = e.getBoundingClientRect();
    const is_table = e.parentElement.closest('.scroll');
    if (box.width && !is_table && (box.right > width + 0.5 || box.left < -0.5))
      found.push(`${e.tagName} reaches from ${box.left} to ${box.right}`);
    const letters = getComputedStyle(e).fontSize;
    if (e.children.length == 0 && e.textContent.trim() && parseFloat(letters) < 12)
      found.push(`${e.tagName} in letters of ${letters}`);
  }
  for (const image of document.images) {
    if (!image.complete || !image.naturalWidth) found.push(`image ${image.alt} did not load`);
    else if (image.clientWidth < 0.85 * Math.min(width, 600))
      found.push(`image ${image.alt} is ${image.clientWidth} wide`);
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium here (apt-get install chromium, or set CHROMIUM): page not opened")
    folder = Path(tempfile.mkdtemp(prefix="flash-chromium-"))
    try:
        with browser(program, folder / "profile") as opened:
            print(opened("Browser.getVersion")["product"])
            yield opened
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the recorded sweep of an H200, with a comparison and failed rows."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("page")
    rows = [row for row in recorded_rows() if row.problem.seqlen_q in (512, 4096)]
    last = next(row for row in reversed(rows) if row.status == "ok")
    base = [replace(r, samples_ms=[0.9 * ms for ms in r.samples_ms]) for r in rows]
    kernel = "(BF16, 128, 128, 64, 4): " + "+".join(["option"] * 20)
    error = "word " * 30 + "x" * 200
    failed = replace(last, status="wrong", key="w", error=error, kernel=kernel)
    for name, content in (("new", [failed, *ceiling_rows(last), *rows]), ("base", base)):
        (folder / f"{name}.jsonl").write_bytes(b"".join(encode(row.to_json()) for row in content))
    out = folder / "page.html"
    arguments = [str(folder / "new.jsonl"), "--base", str(folder / "base.jsonl"), "--out", str(out)]
    assert main(arguments) == 0
    assert "REGRESSION" in out.read_text() and "% of matmul" in out.read_text()
    return out


def faults(chromium: Browser, page: Path, size: tuple[int, int]) -> list[str]:
    chromium.open(page, *size, phone=size == PHONE)
    found = [str(fault) for fault in chromium.evaluate(FAULTS)]
    found += [f"asked for {url}" for url in chromium.requests() if url != page.as_uri()]
    return found + [f"logged: {text}" for text in chromium.complaints()]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_reads_well(
    size: tuple[int, int], chromium: Browser, page: Path, tmp_path: Path
) -> None:
    assert faults(chromium, page, size) == []
    n_charts = chromium.evaluate("document.images.length")
    assert n_charts == page.read_text().count("<img ") >= 4
    picture = tmp_path / "page.png"
    chromium.screenshot(picture)
    print(picture)
    assert picture.stat().st_size > 100_000  # something was drawn


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("<p style='white-space: nowrap'>" + "wide " * 60 + "</p>", "the page is"),
        ("<div style='width: 1300px'>.</div>", "DIV reaches from"),
        ('<img alt="broken" src="data:image/png;base64,AAAA">', "image broken did not load"),
        ('<img alt="far" src="https://example.invalid/x.png">', "asked for https://example.inv"),
        ("<style>@import url(file:///nowhere/x.css);</style>", "asked for file:///nowhere/x.css"),
        ("<p style='font-size: 8px'>small</p>", "P in letters of 8px"),
    ],
    ids=["line", "box", "image", "network", "style", "letters"],
)
def test_what_reads_badly_is_found(
    planted: str, said: str, chromium: Browser, page: Path, tmp_path: Path
) -> None:
    spoilt = tmp_path / "spoilt.html"
    spoilt.write_text(page.read_text().replace("<section>", f"{planted}<section>", 1))
    found = faults(chromium, spoilt, PHONE)
    assert any(said in fault for fault in found), found
