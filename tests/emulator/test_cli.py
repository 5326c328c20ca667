"""python -m flash_helpers.emulator: arguments, files, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flash_helpers
from flash_helpers.emulator import counts_from_csv
from flash_helpers.emulator.door.cli import main
from flash_helpers.emulator.door.cli_arguments import UsageError, parse_argument, prepare

from .support import ptx_kernel

# out[t] = in[t] * factor + offset
SCALE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 in, .param .u64 out, .param .f32 factor, .param .u8 offset)
{
.reg .b32 %r<9>; .reg .b64 %x<9>; .reg .f32 %f<9>; .reg .b16 %h<2>;
ld.param.u64 %x0, [in];
ld.param.u64 %x1, [out];
ld.param.f32 %f0, [factor];
ld.param.u8 %h0, [offset];
cvt.rn.f32.u16 %f1, %h0;
mov.u32 %r0, %tid.x;
mad.wide.u32 %x2, %r0, 4, %x0;
mad.wide.u32 %x3, %r0, 4, %x1;
ld.global.f32 %f2, [%x2];
fma.rn.f32 %f3, %f2, %f0, %f1;
st.global.f32 [%x3], %f3;
ret;
}
"""
LONG = """mov.u32 %r0, 0;
again:
add.u32 %r0, %r0, 1;
setp.lt.u32 %q0, %r0, 50000000;
@%q0 bra again;"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("scale.ptx").write_text(SCALE)
    return tmp_path


def launch(*arguments: str, kernel: str = "scale.ptx", block: str = "32") -> int:
    return main([kernel, "--grid", "1", "--block", block, *arguments])


def scale(source: str, target: str, *more: str, factor: str = "2.5", block: str = "32") -> int:
    return launch(
        *("--arg", source, "--arg", target),
        *("--arg", f"factor:float32={factor}", "--arg", "offset:uint8=0x10"),
        *more,
        block=block,
    )


def test_files_in_and_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.arange(32, dtype=np.float32)
    np.save("in.npy", values)
    assert scale("in:float32[32]=in.npy", "out:float32[4,8] = -> out.npy", "--count") == 0
    np.testing.assert_array_equal(np.load("out.npy"), (values * 2.5 + 16).reshape(4, 8))
    shown = capsys.readouterr().out
    assert "scale: 1 blocks, 32 threads, no error" in shown
    assert "out: 16.0, 18.5, 21.0," in shown and "-> out.npy" in shown
    assert "global ld" in shown and "fma" not in shown
    assert sorted(path.name for path in folder.iterdir()) == ["in.npy", "out.npy", "scale.ptx"]


def test_in_place_and_what_is_not_written(folder: Path) -> None:
    assert scale("a:float32[32]=ones", "b:float32[40]=->b.npy") == 0
    written = np.load("b.npy")
    assert (written[:32] == 18.5).all() and np.isnan(written[32:]).all()


def test_seeds_repeat(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale("a:float32[32]=random", "b:float32[32]=->b.npy") == 0
    seed = capsys.readouterr().out.split("random:")[1].split(")")[0]
    first = np.load("b.npy")
    assert len(np.unique(first)) == 32
    assert scale(f"a:float32[32]=random:{seed}", "b:float32[32]=->b.npy") == 0
    np.testing.assert_array_equal(np.load("b.npy"), first)


@pytest.mark.parametrize(
    ("source", "target", "block", "message"),
    [
        ("a:float32[31]=ones", "b:float32[32]=->", "32", "0 bytes past the end of a"),
        ("a:float32[32]=ones", "b:float32[32]=ones", "32", "b (128 bytes), which is read-only"),
        ("a:float32[32]=ones", "b:float32[32]=->b.npy", "33", "past the end of a"),
    ],
)
def test_errors_in_the_kernel_are_exit_code_1(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    source: str,
    target: str,
    block: str,
    message: str,
) -> None:
    assert scale(source, target, block=block) == 1
    assert message in capsys.readouterr().err
    assert not Path("b.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arg", "a:float32[32]=ones"], "takes parameters of [8, 8, 4, 1] bytes"),
        (["--entry", "sale"], "its kernels: scale"),
        (["--compare", "none.csv"], "--compare none.csv"),
        (["--csv", "none/counts.csv"], "there is no folder none"),
        (["--arg", "a:int8[4]=->none/a.npy"], "there is no folder none"),
        (["--arg", "a:int8[4]=->", "--arg", "a:int8[4]=->"], "the name a is given twice"),
        (["--arg", "a:int8[4]=->x.npy", "--arg", "b:int8[4]=->x.npy"], "the file x.npy is given"),
        (["--shared", "999999"], "shared memory"),
    ],
)
def test_usage_errors_are_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    if "--shared" in arguments:
        assert scale("a:float32[32]=ones", "b:float32[32]=->", *arguments) == 2
    else:
        assert launch(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--grid", "0"],
        ["--grid", "1,1,1,1"],
        ["--block", "1x2"],
        ["--shared", "-1"],
        ["--schedule", "backward"],
        ["--schedule", "forward:3"],
        ["--arg", "a:float33[2]=ones"],
        ["--cou"],
    ],
)
def test_refused_options(folder: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        launch(*arguments)
    assert exit_.value.code == 2


@pytest.mark.parametrize(
    "name", ["absent.ptx", "absent.cu", "broken.ptx", "unknown.ptx", "empty.ptx"]
)
def test_what_cannot_run_is_exit_code_4(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    Path("broken.ptx").write_text(SCALE.replace("mov.u32 %r0, %tid.x;", ".what;"))
    Path("empty.ptx").write_bytes(b"\xff\xfe")
    Path("unknown.ptx").write_text(SCALE.replace("mov.u32 %r0", "wgmma.u32 %r0"))
    assert launch(kernel=name) == 4
    assert capsys.readouterr().err.startswith("cannot run: ")


def test_a_cuda_source_is_compiled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.cu").write_text(
        '#include "value.h"\nextern "C" __global__ void k(int* a) { a[threadIdx.x] = VALUE; }'
    )
    argument = ["--arg", "a:int32[32]=->a.npy"]
    assert launch(*argument, kernel="k.cu") == 4
    assert "value.h" in capsys.readouterr().err
    Path("more").mkdir()
    Path("more/value.h").write_text("#define VALUE 7")
    assert launch(*argument, "-I", "more", kernel="k.cu") == 0
    assert (np.load("a.npy") == 7).all()


def test_csv_and_comparison(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = ("a:float32[32]=ones", "b:float32[32]=->")
    assert scale(*arrays, "--csv", "counts.csv") == 0
    counts = counts_from_csv(Path("counts.csv").read_text())
    assert counts.kernel == "scale" and counts.by_class()["global ld"].sectors == 4
    Path("scale.ptx").write_text(SCALE.replace("%x2, %r0, 4", "%x2, %r0, 8"))
    capsys.readouterr()
    assert scale("a:float32[64]=ones", arrays[1], "--compare", "counts.csv") == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "+4" in line)
    assert row.split("|")[1].strip() == "global ld"


def test_interruption(folder: Path) -> None:
    Path("long.ptx").write_text(ptx_kernel(LONG, parameters=1))
    command = [sys.executable, "-u", "-m", "flash_helpers.emulator", "long.ptx"]
    command += ["--grid", "999", "--block", "256", "--workers", "1", "--arg", "a:int8[4]=random"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(flash_helpers.__file__).parents[1])},
    )
    assert process.stdout is not None
    assert "a: seed" in process.stdout.readline()
    maps = Path(f"/proc/{process.pid}/maps")
    while "/kernel-" not in maps.read_text():  # it is loaded to be launched, for minutes
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n=5", "is not an argument"),
        ("5:int32=5", "is not an argument"),
        ("n:int32", "is not an argument"),
        ("n:int=5", "no type 'int'"),
        ("n:int32=five", "'five' is no int32"),
        ("n:int32=1.5", "is no int32"),
        ("n:int8=128", "does not fit int8: -128 to 127"),
        ("n:uint16=-1", "does not fit uint16: 0 to 65535"),
        ("x:float32=", "is no float32"),
        ("a:float32[]=ones", "no shape"),
        ("a:float32[0]=ones", "no shape"),
        ("a:float32[2,-1]=ones", "no shape"),
        ("a:float32[2]=", "no start value"),
        ("a:float32[2]=twos", "no start value 'twos'"),
        ("a:float32[2]=random:x", "no start value"),
        ("a:float32[2]=->out.txt", "must end in .npy"),
        ("n:int32=5->n.npy", "is no int32"),
    ],
)
def test_arguments_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_argument(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n:int32=-5", (-5).to_bytes(4, "little", signed=True)),
        ("n:uint64=0xffffffffffffffff", b"\xff" * 8),
        ("x:float32=1.5", np.float32(1.5).tobytes()),
        ("x:float16=inf", np.float16(np.inf).tobytes()),
    ],
)
def test_scalars(text: str, expected: bytes) -> None:
    assert prepare(parse_argument(text)).parameter == expected


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (np.zeros(5, np.float32), "holds float32 [5], not float32 [4]"),
        (np.zeros(4, np.float64), "holds float64 [4], not float32 [4]"),
        (np.array([{}], dtype=object), "cannot read"),
        (None, "cannot read"),
    ],
)
def test_files_that_do_not_fit(folder: Path, saved: Any, message: str) -> None:
    if saved is None:
        Path("a.npy").write_bytes(b"nothing")
    else:
        np.save("a.npy", saved, allow_pickle=True)
    with pytest.raises(UsageError) as error:
        prepare(parse_argument("a:float32[4]=a.npy"))
    assert message in str(error.value)


def test_memory_of_arrays() -> None:
    prepared = prepare(parse_argument("a:int16[3,5]=random:1->"))
    assert prepared.array is not None and prepared.memory is not None
    assert prepared.memory.writable and prepared.memory.n_bytes == 30
    assert prepared.memory.address % 256 == 0
    assert int.from_bytes(prepared.parameter, "little") == prepared.memory.address
    with pytest.raises(UsageError, match="no memory for 4000000000000000"):
        prepare(parse_argument("a:float32[1000000000000,1000]=->"))
