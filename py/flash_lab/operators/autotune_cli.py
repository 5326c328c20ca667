"""Find the fastest configuration of the product of matrices for every shape, on this GPU.

    matmul_autotune.py --shapes 4096x4096x4096,512x4096x1024 --export matmul_autotune_cache.json

What was measured once is read from the cache; configurations that did not run are counted, and not
tried again for their shape. --export writes {"MxNxK:dtype": configuration}. Exit codes: 0 ok,
2 usage, 3 no configuration runs for some shape, 4 no data, 130 interrupted.
"""

import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from flash_attention import operators
from flash_attention.triton_kit.tuning import Tuned, TuningFailedError
from flash_helpers.base import tool
from flash_helpers.base.outputs import check_outputs, write_output

from .environment import UnfitEnvironmentError, require_fit
from .matmul_cli import DTYPES, Shape, shape_list


def tune(shape: Shape, dtype: str) -> Tuned[Any]:
    """Raises TuningFailedError where no configuration runs."""
    m, n, k = shape
    draw = functools.partial(torch.randn, dtype=getattr(torch, dtype), device="cuda")
    return operators.matmul_best_config(draw(m, k), draw(k, n))


def main(
    argv: Sequence[str] | None = None, search: Callable[[Shape, str], Tuned[Any]] | None = None
) -> int:
    parser = tool.tool_parser("matmul_autotune.py", __doc__ or "")
    parser.add_argument("--shapes", type=shape_list, required=True, help="MxNxK,...")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument("--export", type=Path, help="a JSON file of the winners")
    options = parser.parse_args(argv)
    check_outputs({"--export": options.export})
    try:
        require_fit()
    except UnfitEnvironmentError as error:
        parser.error(str(error))
    if search is None and not torch.cuda.is_available():
        print("matmul_autotune.py: no GPU", file=sys.stderr)
        return tool.EXIT_NO_DATA
    winners = {}
    for shape in options.shapes:
        name = f"{'x'.join(map(str, shape))}:{options.dtype}"
        try:
            found = (search or tune)(shape, options.dtype)
        except TuningFailedError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        winners[name] = found.config.as_dict()
        origin = "from the cache" if found.cached else "measured"
        words = " ".join(f"{field}={value}" for field, value in winners[name].items())
        print(f"{name}: {words}: {found.milliseconds:.4g} ms, {origin}, {len(found.failed)} failed")
    if options.export:
        write_output(options.export, json.dumps(winners, indent=1) + "\n")
    if not winners:
        return tool.EXIT_NO_DATA
    return tool.EXIT_OK if len(winners) == len(options.shapes) else tool.EXIT_PARTIAL


command = functools.partial(tool.guarded, "matmul_autotune.py", main)
