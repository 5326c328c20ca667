"""roofline.py and plot_roofline.py, from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flash_lab.operators import plot_roofline, roofline

N = 4096


def row(version: str, ms: float, n: int = N) -> dict[str, Any]:
    return {"shape": [n] * 3, "version": version, "ms": ms, "flop": 2 * n**3, "bytes": 6 * n**2}


def results(path: Path, **change: Any) -> Path:
    data = {
        "ceilings": {"peak_tflops": 600.0, "bandwidth_tb_s": 4.0},
        "results": [
            row("v1", 1.0), row("v_auto", 0.25), row("v1", 0.01, 128), row("v_auto", 0.005, 128),
            {"shape": [N] * 3, "version": "v5", "status": "launch_fail"},
        ],
    }  # fmt: skip
    path.write_text(json.dumps(data | change))
    return path


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = results(tmp_path / "r.json")
    assert roofline.main([str(path)]) == 0
    rows = printed(capsys)
    # 2 n^3 FLOP over 6 n^2 bytes; 137.4 GFLOP in 1 ms of 600 TFLOP/s; 4 TB/s times 42.7.
    assert rows[0] == ["4096x4096x4096", "v1", "1365.3", "137.4", "600.0", "22.9%", "compute"]
    assert rows[2] == ["128x128x128", "v1", "42.7", "0.4", "170.7", "0.2%", "memory"]
    assert len(rows) == 4
    assert roofline.main([str(path), "--peak", "1000", "--bandwidth", "0.5"]) == 0
    assert printed(capsys)[0][4:] == ["682.7", "20.1%", "memory"]


@pytest.mark.parametrize(
    "change",
    [{"results": 3}, {"ceilings": {}}, {"results": [row("v1", 0.0)]}, {"results": [{"ms": 1.0}]},
     {"ceilings": {"peak_tflops": None, "bandwidth_tb_s": 4.0}},
     {"results": [row("v1", True)]}],
)  # fmt: skip
@pytest.mark.parametrize("tool", [roofline, plot_roofline])
def test_a_file_that_is_none_is_refused(tool: Any, change: dict[str, Any], tmp_path: Path) -> None:
    path = results(tmp_path / "r.json", **change)
    with pytest.raises(SystemExit, match="2"):
        tool.main([str(path)])
    with pytest.raises(SystemExit, match="2"):
        tool.main([str(tmp_path / "missing.json")])


def test_no_rows(tmp_path: Path) -> None:
    assert roofline.main([str(results(tmp_path / "r.json", results=[]))]) == 4
    only = str(results(tmp_path / "r.json", results=[row("v1", 1.0)]))
    assert plot_roofline.main([only, "--out", str(tmp_path / "x.png")]) == 4
    assert not (tmp_path / "x.png").exists()


def test_arrows_lead_from_blue_to_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrows = []

    def annotate(_: Any, text: str, to: Any, start: Any, arrowprops: Any) -> None:
        arrows.append((start, to))

    axes = pytest.importorskip("matplotlib.axes")
    monkeypatch.setattr(axes.Axes, "annotate", annotate)
    path = results(tmp_path / "r.json")
    assert plot_roofline.main([str(path), "--out", str(tmp_path / "x.png")]) == 0
    assert len(arrows) == 2 and all(to[1] > start[1] for start, to in arrows)
    assert sorted(arrows)[1][0][1] == pytest.approx(137.4, rel=1e-3)  # v1 of 4096


def test_the_picture_is_the_same_for_the_same_rows(tmp_path: Path) -> None:
    path, pictures = str(results(tmp_path / "r.json")), []
    for name in ("a.png", "b.png"):
        assert plot_roofline.main([path, "--out", str(tmp_path / name)]) == 0
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1] and pictures[0].startswith(b"\x89PNG")
