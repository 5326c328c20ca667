"""Errors of flash_attn_func and its peers on inputs that tell kernels apart: the worst row, the
99.9 % quantile and the mean, in eps (2^-11 for fp16, 2^-8 for bf16), against fp64."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from flash_helpers.base.dtypes import DType
from flash_helpers.base.outputs import append_output, check_outputs, write_output
from flash_helpers.base.safe_read import read_regular
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL, guarded

from ..arguments import dtype_list, list_of, one_of, positive, positive_list, seed
from ..bench.distributions import DISTRIBUTIONS
from ..bench.providers import OURS, PROVIDERS
from ..provenance import provenance
from .measure import Case, measure_all
from .table import misses, pool, read_rows, table

DEFAULT_PROVIDERS = (OURS, "cudnn", "fa2", "fa4")


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Heads enough for --rows query rows."""
    masks = {"full": (False,), "causal": (True,), "both": (False, True)}[options.mask]
    axes = (options.distributions, options.dtypes, options.d_heads, options.seq_lens, masks)
    for name, dtype, d_head, seq_len, causal in itertools.product(*axes):
        yield Case(name, dtype, d_head, seq_len, -(-options.rows // seq_len), causal)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, prog="accuracy.py")
    names = list(DISTRIBUTIONS)
    parser.add_argument(
        "--distributions", type=list_of("distribution", names), default=names,
        help="; ".join(f"{name}: {item.summary}" for name, item in DISTRIBUTIONS.items()),
    )  # fmt: skip
    parser.add_argument("--dtypes", type=dtype_list, default=list(DType))
    parser.add_argument("--d_heads", type=positive_list, default=[64, 128])
    parser.add_argument("--seq_lens", type=positive_list, default=[512, 1024, 4096])
    parser.add_argument("--mask", choices=("full", "causal", "both"), default="both")
    parser.add_argument("--rows", type=positive, default=100_000, help="of each case, at least")
    parser.add_argument(
        "--providers", type=list_of("provider", PROVIDERS), default=list(DEFAULT_PROVIDERS)
    )
    parser.add_argument("--device", type=one_of("device", ("cuda", "cpu")), default="cuda")
    parser.add_argument("--seed", type=seed, default=random.randrange(2**31))  # noqa: S311
    parser.add_argument("--out", type=Path, help="JSON Lines; needed to measure")
    parser.add_argument(
        "--show", type=Path, nargs="+", metavar="ROWS", help="print what was measured as a table"
    )
    return parser


def show(paths: list[Path]) -> int:
    """The table of all files together. Exit codes: 0 ours keeps every bar, 1 it misses one, 4 there
    are no rows. Raises ValueError and OSError."""
    texts = (read_regular(path).decode() for path in paths)
    rows = read_rows(line for text in texts for line in text.splitlines())
    if not rows:
        print("accuracy.py: no rows")
        return EXIT_NO_DATA
    found = pool(rows)
    seen = {row["provider"] for row in rows}
    print("\n".join(table(found, [name for name in PROVIDERS if name in seen])))
    missed = list(misses(found))
    print(f"\n{len(missed)} bars are missed", *missed, sep="\n  ")
    return EXIT_FAILED if missed else EXIT_OK


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.show:
        try:
            return show(options.show)
        except (ValueError, OSError) as error:
            parser.error(str(error))
    if options.out is None:
        parser.error("the following arguments are required: --out")
    check_outputs({"--out": options.out})
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("accuracy.py: no GPU; --device cpu takes the emulator", file=sys.stderr)
        return EXIT_NO_DATA
    generator = torch.Generator(options.device).manual_seed(options.seed)
    write_output(options.out, f"{json.dumps(provenance())}\n")
    failed = False
    for row in measure_all(cases(options), options.providers, generator):
        print(*row.values(), flush=True)
        failed = failed or "error" in row
        append_output(options.out, f"{json.dumps(row)}\n")
    code = show([options.out])
    return EXIT_PARTIAL if failed and code == EXIT_OK else code


command = functools.partial(guarded, "accuracy.py", main)

if __name__ == "__main__":
    sys.exit(command())
