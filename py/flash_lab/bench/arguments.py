"""Command-line arguments that the measuring tools share."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.dtypes import DType
from flash_helpers.base.timing import Policy
from flash_helpers.kernels.contract import KernelConfig

from ..arguments import dtype_list, list_of, number, positive_list
from ..correctness.selection import select_kernels
from .providers import PROVIDERS

provider_list = list_of("provider", PROVIDERS)


def add_problem_arguments(parser: argparse.ArgumentParser, seq_lens: Sequence[int]) -> None:
    add = parser.add_argument
    add("--d_heads", type=positive_list, default=[128])
    add("--seq_lens", type=positive_list, default=list(seq_lens))
    add("--dtypes", type=dtype_list, default=[DType.FP16], help="fp16, bf16 or both")
    add("--kernels", action="append", help="as for run_kernels.py; default: what KERNELS names")
    add("--filter", default="", metavar="TEXT", help="only kernels with this in their short form")
    add("--causal", action="store_true", help="each query sees no key behind it")
    add("--seed", type=number(0, 2**31 - 1, int), default=1, help="of the inputs and the order")
    add("--device", default="", help="CUDA_VISIBLE_DEVICES for the measurement; default: as it is")
    add("--no_ceilings", action="store_true",
        help="leave out the ceilings of the roofline (a second a dtype)")  # fmt: skip
    add("--time_limit", type=number(0.1, 3600), default=120.0, metavar="S",
        help="for one step of one kernel; what takes longer is killed (default 120)")  # fmt: skip


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--num_warmups", type=number(0, 10_000, int), default=2)
    add("--num_repeats", type=number(1, 100_000, int), default=20, help="samples, at least")
    add("--max_repeats", type=number(1, 100_000, int), default=0, help="default: twice as many")
    add(
        "--target_noise",
        type=number(0, 50),
        default=1.0,
        metavar="PCT",
        help="sample on until every standard error is below (default 1; 0: --num_repeats exactly)",
    )
    add("--burst", type=number(1, 1000, int), default=2, help="consecutive samples of a kernel")
    add("--noncu", action="store_true", help="do not empty the L2 cache before each sample")
    add("--graph", action="store_true", help="time replays of a CUDA graph (with --noncu)")


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", type=Path, help="append rows to this JSON Lines store as they are made")
    add("--resume", action="store_true", help="continue --out: skip rows of this environment")
    add("--retry_failed", action="store_true", help="with --resume: repeat what is not ok")


def add_ray_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--ray", default="", metavar="ADDRESS",
        help="measure on every GPU of a Ray cluster: local (here), auto, or HOST:PORT")  # fmt: skip
    add("--ray_workers", type=number(0, 4096, int), default=0, metavar="N",
        help="default: one for each GPU; without a GPU that many, on CPUs")  # fmt: skip


def check_store_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.ray and options.device:
        parser.error("--device is for one worker: with --ray the cluster says which GPUs there are")
    if options.ray_workers and not options.ray:
        parser.error("--ray_workers needs --ray")
    if (options.resume or options.retry_failed) and not options.out:
        parser.error("--resume and --retry_failed need --out")


def policy_of(options: argparse.Namespace) -> Policy:
    """Raises ValueError."""
    if options.graph and not options.noncu:
        raise ValueError(
            "--graph needs --noncu: a graph for short kernels runs from a warm L2 cache"
        )
    adaptive = options.target_noise > 0
    most = (options.max_repeats or 2 * options.num_repeats) if adaptive else options.num_repeats
    return Policy(
        warmups=options.num_warmups, repeats=options.num_repeats, cold_l2=not options.noncu,
        burst=options.burst, target_noise=options.target_noise / 100, max_repeats=most,
        graph=options.graph,
    )  # fmt: skip


def configs_of(options: argparse.Namespace) -> list[KernelConfig]:
    """Raises ValueError, also when nothing is left."""
    selected = select_kernels(options.kernels)
    configs = [config for config in selected if options.filter in config.short_form()]
    if not configs:
        raise ValueError(
            f"--filter {options.filter!r} leaves none of {len(selected)} kernels; "
            f"the first is {selected[0].short_form()!r}"
        )
    return configs
