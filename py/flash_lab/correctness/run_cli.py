"""Run kernels on a GPU or in the emulator and check every output against an fp32 reference.

    run_kernels.py                                    (what KERNELS names; sizes by device)
    run_kernels.py 4096 128 --n_runs 3 --kernels tune --ref --ref_v3
    run_kernels.py 4096 --version all                 (the steps of previous_kernels/)
    run_kernels.py 256 --device emulator --kernels "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"

Exit codes: 0 all checks passed, 1 a check failed, 2 usage, 3 some rows could not run,
4 no kernel gave a result, 130 interrupted.
"""

import argparse
import functools
import sys

from flash_helpers.base.tool import EXIT_INTERRUPTED, EXIT_NO_DATA, guarded, tool_parser
from flash_helpers.check.sizes import BATCH_SIZE_FOR_SEQ_LEN, BENCHMARK_N_HEADS
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.history import select_versions
from flash_helpers.kernels.problem import fresh_seed
from flash_helpers.kernels.sets import valid_words

from ..arguments import dtype, positive, seed
from . import report
from .runner import Options, Row, Session, describe_error
from .selection import partition, select_kernels


class NoDataError(Exception):
    """Nothing can be run here."""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("run_kernels.py", __doc__)
    add = parser.add_argument
    add("seq_len", type=positive, nargs="?", help="default: 4096 on a GPU, 256 in the emulator")
    add("d_head", type=positive, nargs="?", help="skip kernels of other head sizes")
    add("--n_runs", "--n-runs", type=positive, default=2, help="runs of each kernel; default 2")
    add("--kernels", "-kernels", nargs="+", action="extend", metavar="NAME",
        help=f"words ({', '.join(valid_words())}) or kernel names, also joined by ';'; "
        "may be repeated; default: $KERNELS, then all")  # fmt: skip
    add("--causal", action="store_true", help="each query sees no key behind it")
    add("--version", metavar="N", help="steps of previous_kernels/ instead: 1 to 16, 3,7,8 or all")
    add("--dtype", type=dtype, help="skip kernels and references of other dtypes (FP16, BF16)")
    add("--ref", action="store_true", help="run the v2 reference too")
    add("--ref_v3", action="store_true", help="run the v3 reference too")
    add("--device", choices=("auto", "cuda", "emulator"), default="auto")
    add("--batch", type=positive, help="default: by seq_len on a GPU, 1 in the emulator")
    add("--heads", type=positive, help=f"default: {BENCHMARK_N_HEADS} on a GPU, 1 in the emulator")
    add("--seed", type=seed, help="of the inputs; default: a fresh one, which is printed")
    add("--csv", action="store_true", help="CSV on standard output, all else on standard error")
    return parser


def resolve_device(wanted: str) -> str:
    """The torch device type: 'cuda', or 'cpu' for the emulator."""
    try:
        import torch
    except ImportError as error:
        raise NoDataError(
            f"PyTorch is needed to run kernels (pip install torch): {error}"
        ) from None
    has_cuda = torch.cuda.is_available()
    if wanted == "cuda" and not has_cuda:
        raise NoDataError("--device cuda: PyTorch sees no CUDA device; try --device emulator")
    return "cuda" if has_cuda and wanted != "emulator" else "cpu"


def make_options(args: argparse.Namespace) -> Options:
    device = resolve_device(args.device)
    on_gpu = device == "cuda"
    seq_len = args.seq_len or (4096 if on_gpu else 256)
    batch = args.batch or (BATCH_SIZE_FOR_SEQ_LEN[seq_len] if on_gpu else 1)
    n_heads = args.heads or (BENCHMARK_N_HEADS if on_gpu else 1)
    run_seed = fresh_seed() if args.seed is None else args.seed
    return Options(device, batch, n_heads, seq_len, run_seed, args.n_runs, args.causal)


def run(args: argparse.Namespace, selected: list[KernelConfig]) -> int:
    options = make_options(args)
    kept, skipped = partition(
        selected, options.seq_len, args.d_head, args.dtype, args.causal,
        emulated=options.device == "cpu",
    )  # fmt: skip
    try:
        import flash_attention
    except ImportError as error:
        raise NoDataError(f"flash_attention cannot be imported: {describe_error(error)}") from None
    out = sys.stderr if args.csv else sys.stdout
    print(report.render_header(options), file=out, flush=True)
    references = [name for name, on in (("v2", args.ref), ("v3", args.ref_v3)) if on]
    rows: list[Row] = []
    interrupted = False
    try:
        for row in Session(options, flash_attention.forward).run(kept, references):
            rows.append(row)
            if sys.stderr.isatty():
                print(f"{row.status:8} {row.label}", file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
    print(report.render_csv(rows, options) if args.csv else report.render_table(rows))
    for line in report.render_details(rows, skipped):
        print(line, file=out)
    print(report.render_summary(rows, skipped, len(selected)), file=out)
    return EXIT_INTERRUPTED if interrupted else report.exit_code(rows)


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(arguments)
    try:
        if args.version is not None and args.kernels is not None:
            raise ValueError("--version and --kernels exclude each other")
        if args.version is None:
            selected = select_kernels(args.kernels)
        else:
            selected = list(select_versions(args.version))
    except ValueError as error:
        parser.error(str(error))
    try:
        return run(args, selected)
    except NoDataError as error:
        print(f"run_kernels.py: {error}", file=sys.stderr)
        return EXIT_NO_DATA


command = functools.partial(guarded, "run_kernels.py", main)

if __name__ == "__main__":
    sys.exit(command())
