"""waves: what a launch loses in its last wave. A command of `profiling.py`."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from flash_helpers.base import csv_text
from flash_helpers.base.lazy import torch
from flash_helpers.base.outputs import OutputError, check_outputs, make_folder, write_output
from flash_helpers.base.timing import CudaTimer
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, ranked
from flash_helpers.check.sizes import BATCH_SIZE_FOR_SEQ_LEN, BENCHMARK_N_HEADS
from flash_helpers.compilers.errors import BuildError
from flash_helpers.kernels.contract import KernelConfig, Variant

from .. import arguments as args
from ..bench.charts import measured_and_predicted
from ..correctness.selection import select_kernels
from ..sass.disassembler import SassError
from ..waves.curve import Curve, curve, measure
from ..waves.kernels import Residency, n_blocks, residency
from ..waves.occupancy import LIMITS, occupancy
from ..waves.plan import WavePlan, plan
from ..waves.subjects import attention, wave_block

H200_SMS = 132

DESCRIPTION = """Waves of blocks: how many a launch is, and what its last one loses.

    profiling.py waves --blocks 300 --threads 256 --registers 168 --shared_bytes 65536
    profiling.py waves --kernel "(FP16, 128, 64, 64, 4): async+eager+swizzled+..." --seq_lens 512
    profiling.py waves --measure --out curves    # on a GPU: throughput against 1 to 600 blocks

--measure times a kernel made for it (--threads, --blocks_per_sm, --block_us) or one of ours
(--kernel), and compares with what a model predicts that was calibrated on a handful of launches.
Exit codes: 0 ok, 1 a prediction is off by more than --within, 2 usage, 4 no data, 130 interrupted.
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    count = args.positive
    add("--blocks", type=args.positive_list, help="of the launch; several are several launches")
    add("--kernel", help="one of ours, by any of its names, instead of --blocks")
    add("--seq_lens", type=args.positive_list, default=[512, 1024, 2048, 4096],
        help="with --kernel; default 512,1024,2048,4096")  # fmt: skip
    add("--batch", type=count, help="with --kernel; default: by length, as everywhere")
    add("--heads", type=count, default=BENCHMARK_N_HEADS, help="with --kernel")
    add("--sms", type=count, help=f"default: of this GPU; without one {H200_SMS} (H200)")
    add("--blocks_per_sm", type=count, help="default: from --registers and so on, else 1")
    add("--threads", type=count, default=384, help="of a block; default 384")
    add("--registers", type=count, help="a thread")
    add("--shared_bytes", type=args.number(0, 1 << 20, int), default=0, help="a block")
    add("--compute_capability", type=_capability, default=(9, 0), help="default 9.0")
    measuring = parser.add_argument_group("on a GPU")
    add = measuring.add_argument
    add("--measure", action="store_true", help="the curve of throughput against blocks")
    add("--max_blocks", type=count, default=600, help="of the curve; default 600")
    add("--step", type=count, default=1, help="every so many blocks; default 1")
    add("--repeats", type=count, default=5, help="launches of each; default 5")
    add("--block_us", type=args.number(1, 10_000), default=100.0, help="of a block; default 100")
    add("--seqlen_k", type=count, default=4096, help="keys, with --kernel; default 4096")
    add("--within", type=args.number(0, 100), default=5.0, help="per cent; default 5")
    add("--seed", type=args.seed, help="of the order; default: a fresh one")
    add("--out", type=Path, help="folder for rows (JSON Lines, CSV) and pictures")


def _capability(text: str) -> tuple[int, int]:
    known = {f"{major}.{minor}": (major, minor) for major, minor in LIMITS}
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(known)}")
    return known[text]


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.kernel and options.blocks:
        parser.error("--kernel and --blocks exclude each other")
    check_outputs({}, {"--out": options.out if options.measure else None})
    try:
        config = _config(options.kernel)
        if options.measure:
            return _measure(options, config)
        plans = list(_plans(options, config))
    except ValueError as error:
        parser.error(str(error))
    except (BuildError, SassError, RuntimeError, OSError) as error:
        print(f"profiling.py waves: no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    if not plans:
        parser.error("expected --blocks, --kernel or --measure")
    for title, found in plans:
        print(f"{title}{found.describe()}")
        if warning := found.warning():
            print(f"  warning: {warning}")
    return EXIT_OK


def _config(name: str | None) -> KernelConfig | None:
    if name is None:
        return None
    found = select_kernels([name])
    if len(found) != 1:
        raise ValueError(f"--kernel {name!r} names {len(found)} kernels: expected one")
    return found[0]


def _plans(
    options: argparse.Namespace, config: KernelConfig | None
) -> Iterator[tuple[str, WavePlan]]:
    sms = options.sms or sms_here() or H200_SMS
    if config is None:
        per_sm = options.blocks_per_sm or _computed(options)
        for blocks in options.blocks or ():
            yield "", plan(blocks, sms, per_sm)
        return
    found: dict[Variant, Residency] = {}
    for seq_len in options.seq_lens:
        variant = config.variant_for(seq_len, seq_len, causal=False)
        if variant not in found:
            found[variant] = residency(config, variant)
            is_first = variant is config.first_variant()
            name = str(config) if is_first else f"{config}, general kernel"
            blocks_per_sm, origin = found[variant].blocks_per_sm, found[variant].origin
            print(f"{name}: {blocks_per_sm} block(s) an SM ({origin})")
        batch = options.batch or BATCH_SIZE_FOR_SEQ_LEN[seq_len]
        blocks = n_blocks(config, batch, options.heads, seq_len)
        title = f"seq {seq_len}, batch {batch}, heads {options.heads}: "
        yield title, plan(blocks, sms, options.blocks_per_sm or found[variant].blocks_per_sm)


def _computed(options: argparse.Namespace) -> int:
    if options.registers is None:
        return 1
    found = occupancy(
        options.compute_capability, options.threads, options.registers, options.shared_bytes
    )
    print(found)
    return found.blocks_per_sm


def sms_here() -> int:
    """0 without a GPU, or without torch."""
    try:
        if not torch.cuda.is_available():
            return 0
    except ImportError:
        return 0
    return int(torch.cuda.get_device_properties("cuda").multi_processor_count)


def _measure(options: argparse.Namespace, config: KernelConfig | None) -> int:
    if not sms_here():
        print("profiling.py waves: no data: --measure needs a GPU", file=sys.stderr)
        return EXIT_NO_DATA
    if config is None:
        per_sm = [options.blocks_per_sm] if options.blocks_per_sm else [1, 2]
        subjects = [wave_block(n, options.threads, options.block_us) for n in per_sm]
    else:
        subjects = [attention(config, options.seqlen_k, options.max_blocks)]
    timer = CudaTimer(torch.device("cuda"), cold_l2=False)
    seed = random.randrange(2**31) if options.seed is None else options.seed  # noqa: S311
    blocks = range(1, options.max_blocks + 1, options.step)
    curves, unwritten = [], []
    for subject in subjects:
        samples = measure(subject, blocks, options.repeats, timer, seed)
        found = curve(subject, blocks, samples)
        curves.append(found)
        print(found.describe(), flush=True)
        if options.out is None:
            continue
        name = "".join(c if c.isalnum() else "-" for c in subject.name)[:80].strip("-")
        try:
            write(found, samples, options.out, f"waves-{name}")
        except OutputError as error:
            print(f"error: {error}; the rows are printed instead", file=sys.stderr)
            print(table_of(found), flush=True)
            unwritten.append(str(error))
    good = all(abs(found.worst.deviation) <= options.within / 100 for found in curves)
    print(f"every point within {options.within:g} %: {'yes' if good else 'NO'} (seed {seed})")
    return ranked(EXIT_OK if good else EXIT_FAILED, unwritten)


def write(found: Curve, samples: dict[int, list[float]], folder: Path, name: str) -> None:
    """Rows as CSV, the samples as JSON Lines, and the picture if matplotlib is there.
    Raises OutputError."""
    make_folder(folder)
    write_output(folder / f"{name}.csv", table_of(found))
    lines = [json.dumps({"subject": found.subject, "blocks": n, "samples_ms": taken})
             for n, taken in sorted(samples.items())]  # fmt: skip
    write_output(folder / f"{name}.jsonl", "\n".join(lines) + "\n")
    try:
        image = picture(found)
    except ImportError:
        print("no picture: pip install matplotlib", file=sys.stderr)
        return
    write_output(folder / f"{name}.png", image)


def table_of(found: Curve) -> str:
    """CSV of its rows."""
    rows = found.rows()
    return csv_text.render(rows, list(rows[0]))


def picture(found: Curve) -> bytes:
    """PNG. Raises ImportError without matplotlib."""
    points = found.points
    always, at_times = zip(*(point.predictions for point in points), strict=True)
    predicted = {"predicted": always}
    if any(point.is_open for point in points):
        predicted["predicted, some launches"] = at_times
    return measured_and_predicted(
        [point.blocks for point in points], [point.measured for point in points], predicted,
        found.subject.partition(":")[0], "blocks", "efficiency (1: the GPU is always full)",
    )  # fmt: skip
