"""Stands in for ncu: `-o FILE` copies $FAKE_PROFILE there unless $FAKE_NCU says otherwise, and
`--import FILE` prints it. Writes its arguments to $FAKE_LOG, one JSON list for each call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    with Path(os.environ["FAKE_LOG"]).open("a") as log:
        log.write(json.dumps(["ncu", *arguments]) + "\n")
    if "--import" in arguments:
        if os.environ.get("LC_ALL") != "C":
            return 1  # a real one may write 1.712.000,5: nothing is better than a wrong figure
        print(Path(arguments[arguments.index("--import") + 1]).read_text())
        return 0
    mode = os.environ.get("FAKE_NCU", "")
    if mode == "permission":
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU")
        return 0
    profile = Path(arguments[arguments.index("-o") + 1])
    if mode == "only ws" and "-pp-" in profile.name:
        print("==WARNING== No kernels were profiled.")
        return 0
    target = arguments[arguments.index("--force-overwrite") + 1 :]
    code = subprocess.run(target, check=False).returncode
    if mode == "wrong":
        print("==ERROR== The application returned an error code (1).")
        code = 1
    shutil.copy(os.environ["FAKE_PROFILE"], profile)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
