"""Whether a command of the documents would start: its program is there and takes its arguments."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.kernel_configs import get_kernel_configs

from .markdown import ROOT

TOOLS = {path.name: path for path in (ROOT / "tools").rglob("*.*") if path.suffix in (".py", ".sh")}
# They run the command that follows their options.
WRAPPERS = ("ncu", "nsys", "compute-sanitizer")
NEED_A_GPU = (*WRAPPERS, "nvidia-smi")
# What the tool for warp-specialised kernels writes (tests/ws_analysis/test_scripts.py runs them).
WRITTEN = ("nvtx_analysis.sh", "ncu_analysis.sh", "compare_analysis.sh")


class WrongCommandError(ValueError):
    """A command in a document that cannot work."""


class _Parsed(BaseException):
    """Ends a tool once its arguments are understood. No tool catches it."""


def check(text: str) -> None:
    """Raises WrongCommandError if a command of the line is unknown or does not take its arguments.
    Nothing that it names is run, but for the part of a tool that reads its arguments."""
    syntax = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
    if syntax.returncode:
        raise WrongCommandError(syntax.stderr)
    for words in commands(text):
        check_words(words)


def commands(text: str) -> list[list[str]]:
    """The words of each command of a line, those of redirections left out."""
    lexer = shlex.shlex(re.sub(r"\$\([^)]*\)", "SUBSTITUTED", text), posix=True,
                        punctuation_chars="|&;<>")  # fmt: skip
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    to_file = False
    for word in lexer:
        if to_file:
            to_file = False
        elif word in (">", ">>", "<", "2>"):
            to_file = True
        elif set(word) <= set("|&;"):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def check_words(words: Sequence[str]) -> None:
    while words and (found := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
        if found[1] == "KERNELS" and found[2]:
            get_kernel_configs(found[2])
        words = words[1:]
    if not words:
        return
    program, *arguments = words
    name = Path(program).name
    if name in WRAPPERS:
        check_words(wrapped(arguments))
    elif name in TOOLS and program in (name, str(TOOLS[name].relative_to(ROOT))):
        check_tool(TOOLS[name], arguments)
    elif program.removeprefix("./") in WRITTEN:
        return
    elif "/" in program and (ROOT / program).is_file():
        check_tool(ROOT / program, arguments)
    elif program in CHECKS:
        CHECKS[program](arguments)
    else:
        raise WrongCommandError(f"{program} is unknown: extend tests/docs/shell.py")


def wrapped(arguments: Sequence[str]) -> Sequence[str]:
    for index, word in enumerate(arguments):
        if word == "python":
            return arguments[index:]
    if set(arguments) <= {"--set", "full", "--page", "source", "--csv"}:
        return []  # running text that quotes the options alone
    raise WrongCommandError(f"no program after {' '.join(arguments)}")


def check_tool(path: Path, arguments: Sequence[str]) -> None:
    if path.suffix == ".sh":
        subprocess.run(["bash", "-n", path], check=True)
        return
    check_parse(path, arguments, lambda: runpy.run_path(str(path), run_name="__main__"))


def check_module(module: str, arguments: Sequence[str]) -> None:
    if module == "pytest":
        return check_pytest(arguments)
    if module.startswith("tests."):
        if not (ROOT / Path(*module.split("."))).with_suffix(".py").is_file():
            raise WrongCommandError(f"there is no module {module}")
        return None
    return check_parse(
        module, arguments, lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)
    )


def check_parse(program: str | Path, arguments: Sequence[str], run: Callable[[], object]) -> None:
    """Runs a tool up to where its parser has understood the arguments."""
    parse = argparse.ArgumentParser.parse_args
    outermost: list[argparse.ArgumentParser] = []

    def parse_and_end(parser: argparse.ArgumentParser, *given: Any) -> None:
        if not outermost:
            outermost.append(parser)
            parse(parser, *given)
            raise _Parsed
        parse(parser, *given)

    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
        patch.setattr(sys, "argv", [str(program), *arguments])
        try:
            run()
        except _Parsed:
            return
        except (SystemExit, ImportError) as error:
            raise WrongCommandError(
                f"{program} does not take {shlex.join(arguments)}: {error!r}"
            ) from error
        finally:
            sys.path[:] = path
    raise WrongCommandError(f"{program} ended before it read its arguments")


def check_pytest(arguments: Sequence[str]) -> None:
    paths = [word for word in arguments if word.startswith("tests")]
    missing = [word for word in paths if not (ROOT / word.partition("::")[0]).exists()]
    if missing:
        raise WrongCommandError(f"pytest: {', '.join(missing)} does not exist")


def check_python(arguments: Sequence[str]) -> None:
    first, *rest = arguments
    if first == "-m":
        check_module(rest[0], rest[1:])
    elif first == "-c":
        compile(rest[0], "-c", "exec")
    elif first == "setup.py":
        ran = subprocess.run(
            [sys.executable, "setup.py", *rest, "--help"], cwd=ROOT, capture_output=True, text=True
        )
        if ran.returncode:
            raise WrongCommandError(ran.stderr)
    else:
        name = Path(first).name
        path = TOOLS.get(name) if first == name else ROOT / first
        if path is None or not path.is_file():
            raise WrongCommandError(f"there is no {first}")
        check_tool(path, rest)


def check_make(arguments: Sequence[str]) -> None:
    targets = [word for word in arguments if "=" not in word]
    known = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = set(targets) - set(" ".join(known).split())
    if unknown:
        raise WrongCommandError(f"the Makefile has no target {', '.join(sorted(unknown))}")


def check_pip(arguments: Sequence[str]) -> None:
    from pip._internal.commands import create_command

    options, rest = create_command(arguments[0]).parse_args(list(arguments[1:]))
    if arguments[0] != "install" or not (rest or options.editables):
        raise WrongCommandError(f"pip {' '.join(arguments)} installs nothing")


def check_files(arguments: Sequence[str]) -> None:
    """diff and sed -i: the files are there."""
    for pattern in [word for word in arguments if "/" in word and not word.startswith("s/")]:
        if not list(ROOT.glob(pattern)):
            raise WrongCommandError(f"there is no {pattern}")


def check_packages(arguments: Sequence[str]) -> None:
    command, *names = arguments
    if command != "install" or not all(re.fullmatch(r"[a-z][a-z0-9+.-]+", n) for n in names):
        raise WrongCommandError(f"apt-get {' '.join(arguments)} is no installation of packages")


def ignore(_: Sequence[str]) -> None:
    """The shell's own."""


CHECKS: dict[str, Callable[[Sequence[str]], None]] = {
    "apt-get": check_packages,
    "bash": lambda arguments: check_tool(ROOT / arguments[0], arguments[1:]),
    "cd": ignore,
    "diff": check_files,
    "export": ignore,
    "git": lambda arguments: check_git(arguments),
    "make": check_make,
    "pip": check_pip,
    "pytest": check_pytest,
    "python": check_python,
    "sed": check_files,
}


def check_git(arguments: Sequence[str]) -> None:
    if arguments[0] != "clone" or len(arguments) != 3:
        raise WrongCommandError(f"git {' '.join(arguments)} is unknown: extend tests/docs/shell.py")
