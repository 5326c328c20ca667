"""python -m flash_helpers.emulator: see cli.py."""

import sys

from .cli import main

sys.exit(main())
