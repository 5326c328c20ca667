"""The generated scripts: as text, and run with programs in the place of Python, nsys and ncu."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flash_lab.ws_analysis.scripts import SCRIPTS
from tests.ws_analysis.profile import KERNEL, TENSOR_BOUND, raw_csv

ROOT = Path(__file__).resolve().parents[2]
NAME = "flash-attention-WS-hopper.py"
FOUR = [
    f"{provider}_{n}"
    for provider in ("triton-ws-fp16", "triton-ws-pp-fp16")
    for n in ("128", "8192")
]
# What runs kernels is replaced; reports are made by the real tool.
PYTHON = """#!/bin/sh
case "$*" in *--report*) exec {real} "$@" ;; esac
{real} -S -c 'import json, os, sys; open(os.environ["FAKE_LOG"], "a").write(
    json.dumps(["python", *sys.argv[1:]]) + "\\n")' "$@"
case "$*" in
  *--trace*) [ "${{FAKE_TRACE:-}}" = none ] || echo '{{}}' > nvtx_profile.trace.json ;;
esac
echo "output of the tool"
case "$*" in *--prepare*) exit "${{FAKE_PREPARE:-0}}" ;; *) exit "${{FAKE_CODE:-0}}" ;; esac
"""
NSYS = """#!/bin/sh
if [ "$1" = profile ]; then
  [ "${{FAKE_NSYS:-}}" = silent ] || echo profile > nvtx_profile.nsys-rep
  shift; while [ "${{1#-}}" != "$1" ] || [ "$1" = nvtx_profile ]; do shift; done
  exec "$@"
fi
echo "statistics of $3"
[ "${{FAKE_NSYS:-}}" != "no stats" ]
"""


class Place:
    """Scripts in one folder, run in another; every path has a space in it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.bin = folder / "my programs"
        self.scripts = folder / "the scripts"
        self.work = folder / "somewhere else"
        tools = folder / "my tools; really"
        for path in (self.bin, self.scripts, self.work, tools):
            path.mkdir()
        self.tool = tools / NAME
        self.tool.symlink_to(ROOT / "tools/benchmark" / NAME)
        self.profile = folder / "profile.csv"
        self.profile.write_text(raw_csv((KERNEL, TENSOR_BOUND)))
        self.program("python", PYTHON)

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text.format(real=shlex.quote(sys.executable)))
        path.chmod(0o755)

    def add_ncu(self) -> None:
        fake = shlex.quote(str(Path(__file__).with_name("fake_ncu.py")))
        self.program("ncu", f'#!/bin/sh\nexec {{real}} -S {fake} "$@"\n')

    def create(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([sys.executable, str(self.tool), "--mode", "create_scripts", *arguments],
                         self.scripts)  # fmt: skip

    def run(self, script: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.scripts / script), *arguments], self.work, **more)

    def _run(
        self, command: list[str], folder: Path, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin", "HOME": os.environ["HOME"],
            "PYTHONPATH": f"{ROOT / 'py'}:{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "PYTHON": str(self.bin / "python"), "FAKE_LOG": str(self.log),
            "FAKE_PROFILE": str(self.profile), **more,
        }  # fmt: skip
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def files(self) -> list[str]:
        found = (p for p in self.work.rglob("*") if p.is_file() and p.stat().st_size)
        return sorted(str(p.relative_to(self.work)) for p in found)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    done = found.create()
    assert done.returncode == 0, done.stderr
    return found


def test_three_scripts_that_bash_can_read(place: Place) -> None:
    assert sorted(path.name for path in place.scripts.iterdir()) == sorted(SCRIPTS)
    for name in SCRIPTS:
        path = place.scripts / name
        assert os.access(path, os.X_OK)
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "@" not in path.read_text().replace("[@]", "")  # no place is left open
    assert "replaced" in place.create().stdout


def test_nvtx_with_nsys(place: Place) -> None:
    place.program("nsys", NSYS)
    done = place.run("nvtx_analysis.sh")
    assert done.returncode == 0, done.stderr
    assert place.files() == ["nvtx_profile.nsys-rep", "nvtx_stats.txt"]
    assert "statistics of nvtx_profile.nsys-rep" in (place.work / "nvtx_stats.txt").read_text()
    (call,) = place.calls()
    assert call[1:4] == [str(place.tool), "--mode", "nvtx"]
    assert call[call.index("--provider") + 1] == "triton-ws-fp16,triton-ws-pp-fp16"
    assert call[call.index("--n_ctx") + 1] == "128,8192"
    assert "--trace" not in call


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"FAKE_NSYS": "silent"}, 4, "wrote no nvtx_profile.nsys-rep"),
        ({"FAKE_NSYS": "no stats"}, 3, "stats failed"),
        ({"FAKE_CODE": "1"}, 1, ""),
    ],
)
def test_nvtx_when_nsys_fails(
    variables: dict[str, str], code: int, message: str, place: Place
) -> None:
    place.program("nsys", NSYS)
    done = place.run("nvtx_analysis.sh", **variables)
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_nvtx_without_nsys(place: Place) -> None:
    done = place.run("nvtx_analysis.sh")
    assert done.returncode == 0, done.stderr
    assert "nsys (Nsight Systems) is not on PATH" in done.stderr
    assert "torch.profiler" in done.stderr
    assert place.files() == ["nvtx_profile.trace.json", "nvtx_stats.txt"]
    (call,) = place.calls()
    assert call[-2:] == ["--trace", "nvtx_profile.trace.json"]


@pytest.mark.parametrize(("code", "expected"), [("0", 4), ("4", 4), ("1", 1), ("130", 130)])
def test_nvtx_without_a_trace(code: str, expected: int, place: Place) -> None:
    done = place.run("nvtx_analysis.sh", FAKE_TRACE="none", FAKE_CODE=code)
    assert done.returncode == expected
    assert "there is no nvtx_profile.trace.json" in done.stderr


def test_no_empty_file_is_left(place: Place) -> None:
    place.program("python", "#!/bin/sh\nexit 4\n")
    for script in ("nvtx_analysis.sh", "compare_analysis.sh"):
        assert place.run(script).returncode == 4
    assert not [path for path in place.work.rglob("*") if path.is_file()]


def test_ncu(place: Place) -> None:
    place.add_ncu()
    done = place.run("ncu_analysis.sh")
    assert done.returncode == 0, done.stderr
    promised = [f"ncu_results/ncu_{name}.ncu-rep" for name in FOUR]
    promised += [f"ncu_results/report_{name}.txt" for name in FOUR]
    assert set(promised) <= set(place.files())
    assert all(path in done.stdout for path in promised)
    text = (place.work / "ncu_results/report_triton-ws-pp-fp16_8192.txt").read_text()
    assert "triton-ws-pp-fp16, N_CTX=8192" in text
    assert "L2 hit rate: 91.75 %" in text
    assert "tensor-bound" in text
    calls = place.calls()
    prepared, *others = calls
    assert "--prepare" in prepared  # tuning comes before the first profile
    assert prepared[prepared.index("--n_ctx") + 1] == "128,8192"
    profiled = [call for call in others if call[0] == "ncu" and "-o" in call]
    assert len(profiled) == 4
    for call in profiled:
        assert call[1:4] == ["--set", "full", "--metrics"]
        assert "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active" in call[4]
        assert call[call.index("--profile-from-start") + 1] == "off"
        assert str(place.tool) in call
    launched = [call for call in others if call[0] == "python"]
    assert len(launched) == 4
    assert {call[call.index("--n_ctx") + 1] for call in launched} == {"128", "8192"}


@pytest.mark.parametrize(
    ("variables", "code", "message", "reports"),
    [
        ({"FAKE_NCU": "permission"}, 4, "CAP_SYS_ADMIN", 0),
        ({"FAKE_NCU": "only ws"}, 3, "triton-ws-pp-fp16, N_CTX=128: no report", 2),
        ({"FAKE_NCU": "wrong"}, 1, "failed its check", 0),
        ({"FAKE_PREPARE": "4"}, 4, "nothing is profiled", 0),
        ({"FAKE_PREPARE": "1"}, 1, "nothing is profiled", 0),
        ({"FAKE_PREPARE": "3"}, 3, "", 4),
    ],
)
def test_ncu_fails(
    variables: dict[str, str], code: int, message: str, reports: int, place: Place
) -> None:
    place.add_ncu()
    done = place.run("ncu_analysis.sh", **variables)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert len(list(place.work.glob("ncu_results/report_*"))) == reports  # and no empty one


def test_ncu_leaves_no_old_report(place: Place) -> None:
    assert place.create("--n_ctx", "128", "--provider", "fa2").returncode == 0
    place.add_ncu()
    assert place.run("ncu_analysis.sh").returncode == 0
    assert [name for name in place.files() if "/report_" in name]
    assert place.run("ncu_analysis.sh", FAKE_NCU="permission").returncode == 4
    assert not [name for name in place.files() if "/report_" in name or name.endswith("rep")]


@pytest.mark.skipif(bool(shutil.which("ncu", path="/usr/bin:/bin")), reason="there is an ncu")
@pytest.mark.skipif(Path("/usr/local/cuda/bin/ncu").exists(), reason="there is an ncu")
def test_without_ncu(place: Place) -> None:
    done = place.run("ncu_analysis.sh", NCU="no such program")
    assert done.returncode == 4
    assert "ncu (Nsight Compute) is not on PATH" in done.stderr
    assert not place.log.exists()  # nothing was run


def test_compare(place: Place) -> None:
    done = place.run("compare_analysis.sh")
    assert done.returncode == 0, done.stderr
    assert place.files() == ["ws_results/analysis.txt", "ws_results/benchmark.txt"]
    first, second = place.calls()
    store = first[first.index("--out") + 1]
    assert store.startswith("ws_results/rows-")
    assert second[second.index("--out") + 1] == store
    assert "--resume" in second
    assert "--resume" not in first
    assert "--provider" not in first  # all of them


@pytest.mark.parametrize(("code", "expected"), [("3", 3), ("1", 1), ("4", 4), ("130", 130)])
def test_compare_passes_the_code_on(code: str, expected: int, place: Place) -> None:
    assert place.run("compare_analysis.sh", FAKE_CODE=code).returncode == expected


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_missing_is_said(script: str, place: Place) -> None:
    place.add_ncu()
    done = place.run(script, PYTHON="/no such/python")
    assert done.returncode == 2
    assert "there is no Python at /no such/python" in done.stderr
    assert place.run(script, "--batch", "2").returncode == 2
    place.tool.unlink()
    done = place.run(script)
    assert done.returncode == 2
    assert f"{NAME} is not there any more" in done.stderr


def test_options_are_written_into_the_scripts(place: Place) -> None:
    arguments = "--batch 2 --heads 16 --head_dim 64 --causal --lang zh --n_ctx 256 --provider fa2"
    assert place.create(*arguments.split()).returncode == 0
    place.add_ncu()
    for script in SCRIPTS:
        assert place.run(script).returncode == 0
    for call in place.calls():
        if call[0] == "python":
            words = arguments.replace("--causal ", "").split()
            for name, value in zip(words[::2], words[1::2], strict=True):
                assert call[call.index(name) + 1] == value
            assert "--causal" in call
    text = (place.work / "ncu_results/report_fa2_256.txt").read_text()
    assert "深度分析" in text


def test_a_folder_that_cannot_be_written(place: Place) -> None:
    place.scripts.rename(place.scripts.with_name("moved"))
    place.scripts.mkdir()
    (place.scripts / SCRIPTS[0]).mkdir()  # in the place of the file
    done = place.create()
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert not [path for path in place.scripts.iterdir() if path.name.startswith(".")]
