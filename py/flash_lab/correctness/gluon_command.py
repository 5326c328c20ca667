"""gluon_check: the command. Without torch or Triton it ends with a sentence."""

import functools
import sys

from flash_helpers.base.tool import EXIT_NO_DATA, guarded


def main() -> int:
    try:
        from .gluon_cli import main as check
    except ImportError as error:  # torch or Triton
        print(f"gluon_check.py: no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    return check()


command = functools.partial(guarded, "gluon_check.py", main)
