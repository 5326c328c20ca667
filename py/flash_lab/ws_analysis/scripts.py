"""`--mode create_scripts`: the shell scripts around nsys, ncu and this tool."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.paths import repository_root
from flash_helpers.base.tool import EXIT_OK, EXIT_USAGE
from flash_helpers.codegen.files import write_if_changed

from .options import TOOL
from .profiles import METRICS

SCRIPTS = ("nvtx_analysis.sh", "ncu_analysis.sh", "compare_analysis.sh")
_TEMPLATES = Path(__file__).parent


def create(options: argparse.Namespace, folder: Path | None = None) -> int:
    """Writes the scripts into `folder` (default: the current one)."""
    folder = Path.cwd() if folder is None else folder
    try:
        for name in SCRIPTS:
            path = folder / name
            known = "replaced" if path.exists() else "written"
            # In one step: a script that runs keeps the text that it began with.
            write_if_changed(path, render(name, options))
            path.chmod(0o755)
            print(f"{name}: {known}")
    except OSError as error:
        print(f"error: cannot write {folder}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


def render(name: str, options: argparse.Namespace) -> str:
    """The text of a script; every word of the options quoted for a shell."""
    shape = ["--batch", options.batch, "--heads", options.heads, "--head_dim", options.head_dim]
    shape += ["--seed", options.seed, "--lang", options.lang]
    shape += ["--causal"] if options.causal else []
    lists = ["--n_ctx", ",".join(map(str, options.n_ctx))]
    if name != "compare_analysis.sh":
        lists += ["--provider", ",".join(options.provider)]
    elif options.named:  # by default it compares all providers
        lists += ["--provider", ",".join(options.named)]
    given = shape if name == "ncu_analysis.sh" else [*shape, *lists]
    values = {
        "PYTHON": shlex.quote(sys.executable),
        "TOOL": shlex.quote(str(tool_path())),
        "OPTIONS": _words(given),
        "PROVIDERS": _words(options.provider),
        "LENGTHS": _words(options.n_ctx),
        "METRICS": shlex.quote(",".join(METRICS)),
    }
    text = "".join((_TEMPLATES / part).read_text() for part in ("head.sh", name))
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _words(values: Sequence[object]) -> str:
    return " ".join(shlex.quote(str(value)) for value in values)


def tool_path() -> Path:
    """The command that runs, else the one of this source tree."""
    running = Path(sys.argv[0]).absolute()  # a link is kept: it is what the user named
    root = repository_root()
    return running if running.name == TOOL or root is None else root / "tools" / "benchmark" / TOOL
