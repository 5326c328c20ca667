"""flash-attn's own tests of packed sequences and caches, with these kernels.

    python -m tests.serving.flash_attn_tests                          fetches them, and runs some
    python -m tests.serving.flash_attn_tests --fetch FOLDER           for where there is no network
    python -m tests.serving.flash_attn_tests --tests FOLDER/test_flash_attn.py \\
        --part 2/4 --seconds 150                                      there, a quarter of them
    python -m tests.serving.flash_attn_tests --tests FILE --cases 0   all cases: hours

The file is tests/test_flash_attn.py of the release whose functions flash_attention.compat has; it
needs the package einops. `import flash_attn` means flash_attention.compat in it, and its bounds are
its own: the error beside twice or thrice that of PyTorch in the same dtype. A few hundred cases are
drawn of each test, the same in every run. What docs/support.md refuses must be refused in its words
(flash_attn_plugin.py), and counts as such. Without a GPU it is a few small cases, in the emulator.

Exit codes: 0 all pass or are refused as documented, 1 another fails, 2 usage, 3 the time was over
before all had run, 4 the tests cannot be had, or none was run.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from flash_attention import compat
from tests.others import (
    EXIT_FAILED,
    EXIT_LATE,
    EXIT_NO_DATA,
    add_options,
    check_options,
    fetched,
    run,
)

URL = "https://raw.githubusercontent.com/Dao-AILab/flash-attention/v{}/tests/test_flash_attn.py"
NEEDED = ("einops",)
PLUGIN = "tests.serving.flash_attn_plugin"
SELECTION = "varlen or kvcache"
# Those that repeat a call 50 times and more are the GPU's.
ON_CPU = f"({SELECTION}) and not deterministic and not overflow"
CASES, CASES_ON_CPU = 300, 6


def check(source: Path, chosen: argparse.Namespace, folder: Path) -> int:
    """Runs, prints what became of the cases, and returns the exit code."""
    text = source.read_text()
    tests = folder / "test_flash_attn.py"
    tests.write_text(text if torch.cuda.is_available() else text.replace('"cuda"', '"cpu"'))
    selected = [str(tests), "-k", chosen.k, f"--cases={chosen.cases}"]
    found = run(
        tests, selected, plugin=PLUGIN, folder=folder, part=chosen.part, seconds=chosen.seconds,
        places=[source.parent],
    )  # fmt: skip
    if not found.anything:
        print("no test ran: see pytest's words above, or select others with -k", file=sys.stderr)
        return EXIT_NO_DATA
    for name in found.failed:
        print(f"{name}: FAILED")
    print(
        f"part {chosen.part}: {found.passed} passed, {found.refused} refused as documented, "
        f"{found.skipped} skipped, {len(found.failed)} failed, {found.not_run} were not run"
    )
    return EXIT_FAILED if found.failed else EXIT_LATE if found.not_run else 0


def _has_einops(beside: Path | None) -> bool:
    there = beside is not None and (beside.parent / "einops").is_dir()
    return there or importlib.util.find_spec("einops") is not None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, compat.__version__)
    on_gpu = torch.cuda.is_available()
    parser.add_argument("-k", default=SELECTION if on_gpu else ON_CPU, help="as pytest's")
    parser.add_argument("--cases", type=int, default=CASES if on_gpu else CASES_ON_CPU,
                        help="of each test; 0: all (default: %(default)s)")  # fmt: skip
    chosen = parser.parse_args(arguments)
    check_options(parser, chosen)
    if chosen.cases < 0:
        parser.error(f"--cases {chosen.cases}: expected 0 (all) or more")
    if not chosen.fetch and not _has_einops(chosen.tests):
        print("flash-attn's tests need the package einops: pip install einops", file=sys.stderr)
        return EXIT_NO_DATA
    with tempfile.TemporaryDirectory() as name:
        try:
            url = URL.format(chosen.release)
            if chosen.fetch:
                print(fetched(url, chosen.fetch, NEEDED))
                return 0
            source = chosen.tests.resolve() if chosen.tests else fetched(url, Path(name) / "theirs")
        except OSError as error:
            print(f"the tests cannot be fetched: {error}; give --tests FILE", file=sys.stderr)
            return EXIT_NO_DATA
        return check(source, chosen, Path(name))


if __name__ == "__main__":
    sys.exit(main())
