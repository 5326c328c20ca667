"""`python -m flash_helpers.build`: builds the extension and puts it into flash_attention/.

`--parts N FILE` is for autotune.py: up to N extensions with a part of the kernels each are there
before the whole is, and FILE lists them.
"""

import argparse
import re
import sys
from pathlib import Path

from ..base.tool import tool_parser
from ..compilers.errors import BuildError


def main(argv: list[str] | None = None) -> int:
    parser = tool_parser("python -m flash_helpers.build", __doc__)
    parser.add_argument("--parts", nargs=2, metavar=("N", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.parts and not re.fullmatch(r"[1-9][0-9]{0,3}", options.parts[0]):
        parser.error(f"--parts {options.parts[0]!r}: expected a number of parts from 1 to 9999")
    try:
        from .driver import InParts, build
        from .report import summary
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed: pip install {error.name}", file=sys.stderr)
        return 1
    from ..base.paths import repository_root

    try:
        parts = options.parts and InParts(int(options.parts[0]), Path(options.parts[1]))
        root = repository_root()
        folders = [root / "flash_attention"] if root else []  # without sources, build() refuses
        result = build(parts=parts, publish_to=folders)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    (target,) = result.published
    name = f"{target.parent.name}/{target.name}"
    print(f"{name}: {summary(result.rows)}; {result.seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
