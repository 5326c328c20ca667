"""See show.py."""

import sys

from .show import command

if __name__ == "__main__":
    sys.exit(command())
