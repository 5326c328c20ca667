"""What every command-line tool shares: its parser, its exit codes, and how it ends when something
outside of it fails (a full disk, a closed pipe, an unsafe cache)."""

import argparse
import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from .cache import CacheLockTimeout, UnsafeCacheError
from .outputs import OutputError, describe

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_PARTIAL, EXIT_NO_DATA = 0, 1, 2, 3, 4
EXIT_INTERRUPTED = 130
EXIT_INTERNAL = 70  # EX_SOFTWARE: Python's own 1 would be read as "a result was wrong"


def tool_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of the tool `name`: it shows the description as it is written, and takes no
    abbreviated options, which another option would make ambiguous."""
    return argparse.ArgumentParser(
        prog=name, description=description, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip


def guarded(name: str, main: Callable[[], int]) -> int:
    """The exit code of the tool `name`: what `main` returns, or in place of an exception EXIT_USAGE
    with one sentence where an output cannot be written, the cache cannot be used or a package is
    not installed, EXIT_INTERRUPTED, or EXIT_INTERNAL with the traceback. SystemExit passes."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that a terminal lacks must not fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main()
        sys.stdout.flush()  # here and not at the interpreter's end, where the exit code is settled
    except KeyboardInterrupt:
        _say("interrupted")
        code = EXIT_INTERRUPTED
    except (OutputError, UnsafeCacheError, CacheLockTimeout) as error:
        _say(f"{name}: error: {error}")
        code = EXIT_USAGE
    except OSError as error:
        _say(f"{name}: error: {describe(error)}")
        code = EXIT_USAGE
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith("flash_"):  # ours: a defect
            _say(f"{traceback.format_exc()}{_internal(name)}")
            code = EXIT_INTERNAL
        else:
            _say(f"{name}: error: {package} is not installed: pip install {package}")
            code = EXIT_USAGE
    except Exception:
        _say(f"{traceback.format_exc()}{_internal(name)}")
        code = EXIT_INTERNAL
    _drop_unwritable_output()
    return code


def ranked(code: int, unwritten: Sequence[str]) -> int:
    """The exit code with outputs that could not be written: a wrong result outranks them, they
    outrank everything else."""
    return EXIT_USAGE if unwritten and code != EXIT_FAILED else code


def _internal(name: str) -> str:
    return f"{name}: internal error: this is a defect of the tool"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _drop_unwritable_output() -> None:
    """The interpreter flushes once more when it ends, and would replace the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
