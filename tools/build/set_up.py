#!/usr/bin/env python3
"""Install what the Makefile's targets need into the environment of the Python that runs this.

    set_up.py run  --torch torch==2.13.0 --cpu-index URL    to build and run kernels
    set_up.py test --torch torch==2.13.0 --cpu-index URL    the linters and the tests' packages, too

PyPI's torch for Linux brings 2.6 GB of CUDA libraries, which are of no use without a GPU. Where
there is none, the CPU build (0.2 GB) is asked for first, from PyTorch's own index (URL); if it
cannot be had, PyPI's build does as well. Where pip is configured to look for packages in other
places, those count, and no index is added.

Exit codes: 0 installed, 1 pip failed (its message is above), 2 usage, 130 interrupted.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

# Nothing is installed yet.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "py"))

from flash_helpers.base.tool import guarded, tool_parser

ROOT = Path(__file__).resolve().parents[2]
# The settings that tell pip where to look.
_PLACES = ("index-url", "extra-index-url", "find-links", "no-index")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def requirements(target: str, pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """What `target` ("run" or "test") takes beside the chosen torch, as pip is asked for it."""
    data = tomllib.loads(pyproject.read_text())
    extras = data["project"]["optional-dependencies"]
    wanted = [*data["build-system"]["requires"], *data["project"]["dependencies"], *extras["torch"]]
    return wanted + extras["test"] if target == "test" else wanted


def sees_gpu() -> bool:
    """Whether NVIDIA's driver lists a GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    done = subprocess.run([program, "-L"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "GPU" in done.stdout


def has_places_of_its_own() -> bool:
    """Whether pip's configuration (files or environment) says where packages come from."""
    done = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=False)
    settings = (line.partition("=")[0].rpartition(".")[2] for line in done.stdout.splitlines())
    return any(setting in _PLACES for setting in settings)


def install_cpu_torch(torch: str, index: str) -> bool:
    """The CPU build and nothing else; its dependencies come with the rest. False: not to be had."""
    command = [*_PIP, "install", "--quiet", "--no-deps", "--retries", "1", "--timeout", "15"]
    done = subprocess.run(
        [*command, "--index-url", index, torch], capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def main(arguments: list[str] | None = None) -> int:
    parser = tool_parser("set_up.py", __doc__)
    parser.add_argument("target", choices=("run", "test"))
    parser.add_argument("--torch", required=True, help="the requirement, such as torch==2.13.0")
    parser.add_argument("--cpu-index", required=True, metavar="URL", help='"": none is asked')
    options = parser.parse_args(arguments)
    wanted = [options.torch, *requirements(options.target)]
    if options.cpu_index and not sees_gpu() and not has_places_of_its_own():
        print(f"no GPU: looking for the CPU build of {options.torch} (0.2 GB)", flush=True)
        if not install_cpu_torch(options.torch, options.cpu_index):
            print(
                f"{options.cpu_index} has none or cannot be reached: taking PyPI's build, "
                "which brings 2.6 GB of CUDA libraries",
                flush=True,
            )
    print(f"installing {' '.join(wanted)}", flush=True)
    done = subprocess.run([*_PIP, "install", "--quiet", *wanted], check=False)
    return 0 if done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(guarded("set_up.py", main))
