import sys

from flash_helpers.base.tool import guarded

from .cli import main

sys.exit(guarded("profiling.py", main))
