"""python -m flash_helpers.emulator: see cli.py."""

import sys

from .door.cli import main

sys.exit(main())
