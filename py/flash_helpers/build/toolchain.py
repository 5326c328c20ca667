"""`python -m flash_helpers.build.toolchain`: the compilers that a build would take."""

import sys

from ..compilers.toolchain import main

if __name__ == "__main__":
    sys.exit(main())
