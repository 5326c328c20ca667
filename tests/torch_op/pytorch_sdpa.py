"""PyTorch's own tests of scaled_dot_product_attention, with these kernels enabled.

    python -m tests.torch_op.pytorch_sdpa                          fetches the tests, and runs them
    python -m tests.torch_op.pytorch_sdpa --fetch FOLDER --release 2.11.0     for where there is no
    python -m tests.torch_op.pytorch_sdpa --tests FOLDER/test_transformers.py \\
        --part 2/8 --seconds 150                                   network, an eighth of them

The file is test/test_transformers.py of the release that is installed; it needs the package
expecttest. A test that fails is run once more with PyTorch's own kernels: what fails there too is
none of ours. What is left must be in LISTED. Without a GPU it is the tests for CPUs, in the
emulator. The second run has a quarter of --seconds more.

Exit codes: 0 all pass or are listed, 1 another fails, 2 usage, 3 the time was over before all had
run, 4 the tests cannot be had, or none was selected.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from tests.others import (
    EXIT_FAILED,
    EXIT_LATE,
    EXIT_NO_DATA,
    Outcome,
    add_options,
    check_options,
    fetched,
    run,
)

URL = "https://raw.githubusercontent.com/pytorch/pytorch/v{}/test/test_transformers.py"
NEEDED = ("expecttest",)
ON_GPU = "cuda and (flash or fused or sdp) and not mem_efficient and not cudnn"
ON_CPU = "cpu and (flash or fused or sdp)"
ENABLED = "tests.torch_op.enabled_plugin"

# Of failures that are meant: a pattern of the test's name, and the refusal in docs/support.md.
LISTED: Mapping[str, str] = {
    r"backwards_throws_determinism_warning_fused_kernel0_warn_only_True": (
        "under use_deterministic_algorithms these gradients are: there is nothing to warn of"
    ),
}


def reason_for(name: str) -> str:
    """The listed refusal; empty: there is none."""
    return next((reason for pattern, reason in LISTED.items() if re.search(pattern, name)), "")


def check(tests: Path, chosen: argparse.Namespace, folder: Path) -> int:
    """Runs, prints a table, and returns the exit code."""
    selected = [str(tests), "-k", chosen.k]
    ours = run(
        tests, selected, plugin=ENABLED, folder=folder, part=chosen.part, seconds=chosen.seconds
    )
    if not ours.anything:
        print("no test ran: see pytest's words above, or select others with -k", file=sys.stderr)
        return EXIT_NO_DATA
    theirs = Outcome()
    again = [f"{tests}::{name}" for name in ours.failed if " " not in name]
    if again:
        theirs = run(tests, again, plugin="", folder=folder, seconds=chosen.seconds / 4)
    listed = [name for name in ours.failed if name not in theirs.failed and reason_for(name)]
    unlisted = [name for name in ours.failed if name not in (*theirs.failed, *listed)]
    for name in ours.failed:
        common = "fails with PyTorch's own, too" if name in theirs.failed else reason_for(name)
        print(f"{name}: {common or 'NOT LISTED'}")
    if theirs.not_run:
        print(f"{theirs.not_run} of these were not run with PyTorch's own: the time was over")
    print(
        f"part {chosen.part}: {ours.passed} passed, {ours.skipped} skipped, {len(ours.failed)} "
        f"failed: {len(theirs.failed)} with PyTorch's own, too, {len(listed)} as listed, and "
        f"{len(unlisted)} are not listed; {ours.not_run} were not run"
    )
    return EXIT_FAILED if unlisted else EXIT_LATE if ours.not_run else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, torch.__version__.partition("+")[0])
    on_gpu = torch.cuda.is_available()
    parser.add_argument("-k", default=ON_GPU if on_gpu else ON_CPU, help="as pytest's")
    chosen = parser.parse_args(arguments)
    check_options(parser, chosen)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            url = URL.format(chosen.release)
            if chosen.fetch:
                print(fetched(url, chosen.fetch, NEEDED))
                return 0
            tests = chosen.tests.resolve() if chosen.tests else fetched(url, folder)
        except OSError as error:
            print(f"the tests cannot be fetched: {error}; give --tests FILE", file=sys.stderr)
            return EXIT_NO_DATA
        return check(tests, chosen, folder)


if __name__ == "__main__":
    sys.exit(main())
