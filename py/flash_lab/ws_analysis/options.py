"""The tool's command line."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.dtypes import DType
from flash_helpers.base.tool import tool_parser
from flash_helpers.kernels.problem import AttentionProblem

from .. import arguments as args
from ..bench.arguments import (
    add_sampling_arguments,
    add_store_arguments,
    check_store_arguments,
    policy_of,
)
from .providers import PROVIDERS, SEED_PROVIDERS
from .words import ENGLISH, LANGUAGES

TOOL = "flash-attention-WS-hopper.py"
CREATE, BENCHMARK, ANALYSIS, NVTX, NCU = "create_scripts", "benchmark", "analysis", "nvtx", "ncu"
MODES = (CREATE, BENCHMARK, ANALYSIS, NVTX, NCU)
SEED_LENGTHS = (128, 8192)
_MEASURED = (
    "num_warmups", "num_repeats", "max_repeats", "target_noise", "burst", "noncu", "graph", "out",
    "resume", "retry_failed", "rows", "results", "device", "time_limit",
)  # fmt: skip
_ONLY_FOR: dict[str, tuple[str, ...]] = dict.fromkeys(_MEASURED, (BENCHMARK, ANALYSIS)) | {
    "no_ceilings": (ANALYSIS,),
    "ncu_results": (ANALYSIS,),
    "ncu": (ANALYSIS, NCU),
    "trace": (NVTX,),
    **dict.fromkeys(("prepare", "report", "log"), (NCU,)),
}

DESCRIPTION = """Measure and profile warp-specialised attention on Hopper, plain (WS) and pipelined.

    flash-attention-WS-hopper.py --mode create_scripts   # nvtx_, ncu_ and compare_analysis.sh
    flash-attention-WS-hopper.py --mode benchmark        # times, TFLOPS, GB/s, MB, plots
    flash-attention-WS-hopper.py --mode analysis         # speedup, scaling, resources, roofline
    flash-attention-WS-hopper.py --mode nvtx             # the ranges, for nsys; else a torch trace
    flash-attention-WS-hopper.py --mode ncu --n_ctx 8192 --provider triton-ws-pp-fp16

Every output is checked before a time is kept. All modes but create_scripts need a GPU. Exit codes:
0 ok, 1 a result was wrong, 2 usage, 3 some rows failed, 4 no data, 130 interrupted.
docs/ws-analysis.md explains the figures.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser(TOOL, DESCRIPTION)
    add = parser.add_argument
    add("--mode", type=args.one_of("mode", MODES), required=True, help=", ".join(MODES))
    add("--lang", type=args.one_of("language", LANGUAGES), default=ENGLISH,
        help="of headings and labels: en or zh (default en)")  # fmt: skip
    add("--provider", type=args.list_of("provider", PROVIDERS),
        help=f"of {', '.join(PROVIDERS)}; default: all, for profiles the first two")  # fmt: skip
    add("--n_ctx", type=args.positive_list, help="sequence lengths (default 128,8192)")
    add("--batch", type=args.positive, default=1)
    add("--heads", type=args.positive, default=32)
    add("--head_dim", type=args.positive, default=128)
    add("--causal", action="store_true", help="each query sees no key behind it")
    add("--seed", type=args.seed, default=1, help="of the inputs and the order")
    add_sampling_arguments(parser)
    add_store_arguments(parser)
    add("--rows", type=Path, metavar="STORE",
        help="show what was recorded there instead of measuring: needs no GPU")  # fmt: skip
    add("--results", type=Path, default=Path("ws_results"), metavar="DIR",
        help="where tables and plots are written (default ws_results)")  # fmt: skip
    add("--ncu_results", type=Path, default=Path("ncu_results"), metavar="DIR",
        help="analysis: where ncu_analysis.sh left profiles (default ncu_results)")  # fmt: skip
    add("--no_ceilings", action="store_true", help="analysis: leave out the roofline")
    add("--device", default="", help="CUDA_VISIBLE_DEVICES for the measurement")
    add("--time_limit", type=args.number(0.1, 3600), default=300.0, metavar="S",
        help="for one step of one kernel, such as its tuning (default 300)")  # fmt: skip
    add("--trace", type=Path, metavar="FILE",
        help="nvtx: torch.profiler's trace (default nvtx_profile.trace.json)")  # fmt: skip
    add("--prepare", action="store_true",
        help="ncu: tune and check all that is named, so that profiles start tuned")  # fmt: skip
    add("--report", type=Path, metavar="FILE.ncu-rep", help="ncu: explain this profile")
    add("--log", type=Path, metavar="FILE", help="ncu: what ncu printed while it made --report")
    add("--ncu", metavar="PROGRAM", help="the ncu program (default: NCU, else on PATH)")
    parser.set_defaults(ray="", ray_workers=0)
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Checked and complete; `named` are the providers that were asked for by name, `policy` is how
    they are timed."""
    parser = make_parser()
    options = parser.parse_args(argv)
    _check_modes(parser, options)
    check_store_arguments(parser, options)
    if options.rows and (options.out or options.provider or options.n_ctx):
        parser.error(
            "--rows shows all of a store: --out, --provider and --n_ctx have no part in it"
        )
    if options.log and not options.report:
        parser.error("--log is what ncu printed while it made --report FILE: name that, too")
    one_launch = options.mode == NCU and not (options.prepare or options.report)
    if one_launch and not (_one(options.provider) and _one(options.n_ctx)):
        parser.error(
            "--mode ncu launches one configuration: name it with --n_ctx and --provider, such as "
            f"--n_ctx {SEED_LENGTHS[0]} --provider {SEED_PROVIDERS[0]}"
        )
    try:
        options.policy = policy_of(options)
    except ValueError as error:
        parser.error(str(error))
    options.named = tuple(options.provider or ())
    is_measured = options.mode in (BENCHMARK, ANALYSIS)
    options.provider = options.named or (PROVIDERS if is_measured else SEED_PROVIDERS)
    options.n_ctx = options.n_ctx or list(SEED_LENGTHS)
    return options


def _check_modes(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """An option that would have no effect is a mistake."""
    for name, value in vars(options).items():
        modes = _ONLY_FOR.get(name)
        if modes and options.mode not in modes and value != parser.get_default(name):
            parser.error(
                f"--{name} is for --mode {' and '.join(modes)}, not for --mode {options.mode}"
            )


def _one(values: Sequence[object] | None) -> bool:
    return values is not None and len(values) == 1


def problems(options: argparse.Namespace) -> list[AttentionProblem]:
    return [
        AttentionProblem.self_attention(
            DType.FP16, options.batch, n_ctx, options.heads, options.head_dim, causal=options.causal
        )
        for n_ctx in options.n_ctx
    ]
