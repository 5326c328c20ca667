"""What the measuring tools do alike around their sweeps: problems, store, worker, exit codes."""

import argparse
import datetime
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flash_helpers.base.outputs import OutputError, describe
from flash_helpers.base.paths import repository_root
from flash_helpers.base.tool import EXIT_INTERRUPTED, EXIT_NO_DATA, EXIT_USAGE
from flash_helpers.check.sizes import BATCH_SIZE_FOR_SEQ_LEN, BENCHMARK_N_HEADS
from flash_helpers.kernels.problem import AttentionProblem

from . import arguments as args
from .ray_pool import RayMissingError, RayPool
from .store import ResultStore, StoreError, open_store
from .supervisor import Measurer, Supervisor, WorkerStartError
from .sweep import Case, Sweep, make_case

CUDA_BACKEND = "flash_lab.bench.cuda_backend:CudaBackend"


def cases_of(options: argparse.Namespace, providers: Sequence[str]) -> list[Case]:
    """Raises ValueError."""
    configs = args.configs_of(options)
    problems = (
        AttentionProblem.self_attention(
            dtype, BATCH_SIZE_FOR_SEQ_LEN[seq_len], seq_len, BENCHMARK_N_HEADS, d_head,
            causal=options.causal,
        )
        for d_head in options.d_heads
        for seq_len in options.seq_lens
        for dtype in options.dtypes
    )  # fmt: skip
    return [make_case(problem, options.seed, configs, providers) for problem in problems]


def with_session(
    tool: str,
    options: argparse.Namespace,
    backend: str,
    measure: Callable[[ResultStore, Measurer], int],
) -> int:
    """Opens store and worker; the exit code of `measure`, or of what went wrong around it."""
    path = options.out or default_store(tool)
    kept = f"the finished rows are in {path}; --out {path} --resume goes on"
    try:
        workers = (
            RayPool(backend, options.time_limit, address=options.ray, n_workers=options.ray_workers)
            if options.ray
            else Supervisor(backend, options.time_limit, device=options.device)
        )
        with open_store(path, resume=options.resume) as store, workers:
            return measure(store, workers)
    except (StoreError, RayMissingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except WorkerStartError as error:
        print(f"no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    except (OSError, OutputError) as error:  # of standard output, of a file beside the store
        reason = describe(error) if isinstance(error, OSError) else str(error)
        raise OutputError(f"{reason}; {kept}") from error
    except KeyboardInterrupt:
        print(f"\ninterrupted: {kept}", file=sys.stderr)
        return EXIT_INTERRUPTED


def default_store(tool: str) -> Path:
    """Every measurement is kept: where nothing is named, in a new file under build/."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    root = repository_root() or Path.cwd()
    return root / "build" / "bench" / f"{tool}-{stamp}-{os.getpid()}.jsonl"


def announce(store: ResultStore, sweep: Sweep) -> None:
    """Where the rows go, what was found there, and what is measured on what."""
    print(f"store: {store.path}")
    known = {row.environment_fingerprint for row in store.contents.rows}
    others = known - {sweep.environment_fingerprint}
    if others:
        print(f"note: rows of {len(others)} other environment(s) are kept and not used")
    for note in store.notes:
        print(f"note: {note}", file=sys.stderr)
    print("\n".join(f"{name}: {value}" for name, value in sweep.environment.items()), flush=True)
