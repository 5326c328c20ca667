import sys

from ..tool import guarded
from .cli import main

sys.exit(guarded("profiling.py", main))
