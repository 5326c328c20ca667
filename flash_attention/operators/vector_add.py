"""The sum of two vectors, timed: `python -m flash_attention.operators.vector_add`. The same as
`python -m flash_attention.operators vector_add`, with its options."""

import sys

from .show import command

if __name__ == "__main__":
    sys.argv.insert(1, "vector_add")
    sys.exit(command())
