"""Stands in for ncu: replays recorded output, or fails as $FAKE_NCU says. Writes its arguments to
$FAKE_NCU_LOG, one JSON list for each call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DATA = Path(__file__).parent
MODES = os.environ.get("FAKE_NCU", "ok").split(",")  # one for each call, the last one repeats
LOST = "the device is lost since an earlier row: AcceleratorError: illegal memory access"
HEADER = "kernel,symbol,dtype,d_head,status,explanation"


def options(name: str) -> list[str]:
    """What follows an option of the target, up to the next one."""
    if name not in sys.argv:
        return []
    rest = sys.argv[sys.argv.index(name) + 1 :]
    return rest[: next((n for n, text in enumerate(rest) if text.startswith("--")), len(rest))]


def verdicts(mode: str) -> str:
    """What run_kernels.py prints with --csv."""
    lines = [HEADER]
    for name, option in (("v2", "--ref"), ("v3", "--ref_v3")):
        if option in sys.argv:
            status = "NOT RUN,no such backend" if mode == "noref" and name == "v3" else "pass,"
            lines.append(f'"{name}: reference (FP16, 128)",,FP16,128,{status}')
    for number, symbol in enumerate(options("--kernels")):
        status = "pass,"
        if mode == "wrong" and number == 0:
            status = "FAIL,error / tolerance 7.0"
        if mode == "fault":
            status = "NOT RUN,AcceleratorError: illegal" if number == 0 else f"NOT RUN,{LOST}"
        lines.append(f'"the kernel {number}",{symbol},FP16,128,{status}')
    return "\n".join(lines) + "\n"


def replay(name: str, mode: str) -> str:
    """The recorded text. It was recorded without run_kernels.py's --csv: that comes here."""
    text = (DATA / f"{name}.csv").read_text()
    end = text.find("==PROF== Disconnected")
    return text[:end] + verdicts(mode) + text[end:]


def output(mode: str) -> tuple[str, int]:
    if mode in ("badmetric", "nokernel", "autounits"):
        return replay(mode, mode), 0
    if mode == "appfails":
        return "Traceback: no such thing\n" + (DATA / "appfails.csv").read_text(), 1
    if mode == "permission":
        message = (
            "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
            "Counters on the target device 0."
        )
        return f"==ERROR== {message}\n{verdicts(mode)}", 0
    if mode == "silent":
        return verdicts(mode), 0
    if mode == "empty":
        return "", 0
    text = replay("ok", mode)
    if mode == "wrongunit":
        text = text.replace('"gpu__time_duration.sum","ns"', '"gpu__time_duration.sum","weeks"')
    if mode == "microseconds":  # the unit of another spelling of the same value
        text = text.replace('sum","ns","330,496"', 'sum","us","330.496"')
    if mode == "wrongvalue":  # 1000 times too short: no unit tells
        text = text.replace('sum","ns","330,496"', 'sum","ns","330.496"')
        text = text.replace('sum","ns","330,624"', 'sum","ns","330.624"')
    if mode == "nounit":
        text = text.replace('"lts__t_sector_hit_rate.pct","%"', '"lts__t_sector_hit_rate.pct",""')
    if mode == "renamed":
        text = text.replace("cudnn_generated_fort", "new_engine_fort").replace(
            "pytorch_flash::flash_fwd_kernel<", "pytorch_flash::forward<"
        )
    if mode == "badtable":
        text = text.replace('"Metric Unit",', "")
    if mode == "truncated":
        text = text[: text.rindex('"6"') + 40]
    if mode == "dies":  # the target is gone before it reports
        text = text.replace(verdicts(mode), "Segmentation fault\n")
        return text + "==ERROR== The application returned an error code (11).\n", 11
    return text, 0


def main() -> int:
    if sys.argv[1:] == ["--version"]:
        print("NVIDIA (R) Nsight Compute\nVersion 2025.3.1.0 (build 1)")
        return 3 if MODES[0] == "broken" else 0
    log = Path(os.environ["FAKE_NCU_LOG"])
    calls = len(log.read_text().splitlines()) if log.exists() else 0
    with log.open("a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\n")
    mode = MODES[min(calls, len(MODES) - 1)]
    if mode in ("hang", "stubborn"):
        if mode == "stubborn":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(f"{log}.pids").write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    if "--import" in sys.argv:
        print(Path(options("--import")[0]).read_text())
        return 0
    text, code = output(mode)
    if "--export" in sys.argv and '"ID",' in text:
        start = text.index('"ID",')
        Path(options("--export")[0]).write_text(text[start:])
        text = text[:start]
    sys.stdout.write(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
