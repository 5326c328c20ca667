"""python -m flash_helpers.emulator: see cli.py."""

import sys

from ..base.tool import guarded
from .door.cli import main

sys.exit(guarded("flash_helpers.emulator", main))
