"""flash-attn's own tests of packed sequences and caches, with these kernels.

    python -m tests.serving.flash_attn_tests                          fetches them, and runs some
    python -m tests.serving.flash_attn_tests --tests FILE --cases 0   all cases: hours

The file is tests/test_flash_attn.py of the release whose functions flash_attention.compat has; it
needs the package einops. `import flash_attn` means flash_attention.compat in it, and its bounds are
its own: the error beside twice or thrice that of PyTorch in the same dtype. A few hundred cases are
drawn of each test, the same in every run. What docs/support.md refuses must be refused in its words
(flash_attn_plugin.py), and counts as such. Without a GPU it is a few small cases, in the emulator.

Exit codes: 0 all pass or are refused as documented, 1 another fails, 2 usage, 4 the tests cannot be
had, or none was run.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import torch

from flash_attention import compat
from tests.torch_op.pytorch_sdpa import EXIT_FAILED, EXIT_NO_DATA, run

URL = "https://raw.githubusercontent.com/Dao-AILab/flash-attention/v{}/tests/test_flash_attn.py"
PLUGIN = "tests.serving.flash_attn_plugin"
SELECTION = "varlen or kvcache"
# Those that repeat a call 50 times and more are the GPU's.
ON_CPU = f"({SELECTION}) and not deterministic and not overflow"
CASES, CASES_ON_CPU = 300, 6


def source(given: Path | None) -> str:
    """The tests' text. Raises OSError."""
    if given is not None:
        return given.read_text()
    with urllib.request.urlopen(URL.format(compat.__version__), timeout=60) as answer:
        return str(answer.read().decode())


def check(text: str, folder: Path, expression: str, cases: int) -> int:
    """Runs, prints what became of the cases, and returns the exit code."""
    tests = folder / "test_flash_attn.py"
    tests.write_text(text if torch.cuda.is_available() else text.replace('"cuda"', '"cpu"'))
    chosen = [str(tests), "-k", expression, f"--cases={cases}"]
    found = run(tests, chosen, plugin=PLUGIN, results=folder / "results.xml")
    if not found.passed and not found.failed:
        print("no test ran: see pytest's words above, or select others with -k", file=sys.stderr)
        return EXIT_NO_DATA
    for name in found.failed:
        print(f"{name}: FAILED")
    print(
        f"{found.passed} passed, {found.skipped} skipped or refused as documented, "
        f"{len(found.failed)} failed"
    )
    return EXIT_FAILED if found.failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--tests", type=Path, help="the file, where it is already here")
    parser.add_argument("-k", default=SELECTION if on_gpu else ON_CPU, help="as pytest's")
    parser.add_argument("--cases", type=int, default=CASES if on_gpu else CASES_ON_CPU,
                        help="of each test; 0: all (default: %(default)s)")  # fmt: skip
    chosen = parser.parse_args(arguments)
    if chosen.tests is not None and not chosen.tests.is_file():
        parser.error(f"--tests {chosen.tests} is not a file")
    if chosen.cases < 0:
        parser.error(f"--cases {chosen.cases}: expected 0 (all) or more")
    if importlib.util.find_spec("einops") is None:
        print("flash-attn's tests need the package einops: pip install einops", file=sys.stderr)
        return EXIT_NO_DATA
    try:
        text = source(chosen.tests)
    except (OSError, urllib.error.URLError) as error:
        print(f"the tests cannot be fetched: {error}; give --tests FILE", file=sys.stderr)
        return EXIT_NO_DATA
    with tempfile.TemporaryDirectory() as name:
        return check(text, Path(name), chosen.k, chosen.cases)


if __name__ == "__main__":
    sys.exit(main())
