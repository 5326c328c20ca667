"""Draw matmul_results.json under the roofline: an arrow from v1 (blue) to v_auto (green) says what
tuning brought. Exit codes as of roofline.py."""

import functools
import sys
from pathlib import Path

from flash_helpers.base.outputs import check_outputs, write_output
from flash_helpers.base.tool import EXIT_NO_DATA, EXIT_OK, guarded

from ..bench.charts import tuned_roofline
from .roofline import read, roofline_parser


def main(argv: list[str] | None = None) -> int:
    parser = roofline_parser("plot_roofline.py", __doc__ or "")
    parser.add_argument("--out", type=Path, default=Path("roofline.png"), help="a PNG file")
    options = parser.parse_args(argv)
    check_outputs({"--out": options.out})
    rows, roof = read(parser, options)
    places = {
        version: {
            str(row["shape"]): (row["intensity"], row["part"] * row["roof"])
            for row in rows if row["version"] == version
        }
        for version in ("v1", "v_auto")
    }  # fmt: skip
    if not all(places.values()):
        print("plot_roofline.py: no rows of v1 and v_auto to draw", file=sys.stderr)
        return EXIT_NO_DATA
    write_output(options.out, tuned_roofline(places["v1"], places["v_auto"], roof))
    return EXIT_OK


command = functools.partial(guarded, "plot_roofline.py", main)
