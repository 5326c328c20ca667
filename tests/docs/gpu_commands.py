"""Prints a shell script with what the documents say takes a GPU, to be run from the root of a clone
on a machine that has one, after `KERNELS=all make build`:

    python -m tests.docs.gpu_commands > commands.sh; bash commands.sh

Commands of one block run in one shell, those before the last that takes a GPU with it. What fails
is counted, and the rest goes on; the end is a table of all exit codes. With --results also those of
docs/results, sweeps of minutes that made the figures there."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from .blocks import Block, Command, blocks, commands_of
from .markdown import documents

HEAD = """#!/usr/bin/env bash
export PYTHONPATH=$PWD/py:$PWD${PYTHONPATH:+:$PYTHONPATH}
log=$(mktemp)
ended() { # PLACE CODE EXPECTED
  local verdict=ok
  if [ "$2" != "$3" ]; then verdict=WRONG; fi
  echo "$verdict: $1 ended with $2" | tee -a "$log"
}
"""
TAIL = """
echo; cat "$log"; ! grep -q WRONG "$log"
"""
# What the examples in Python find around them.
TENSORS = """import torch
q, k, v = (torch.randn(2, 512, 4, 128, device="cuda", dtype=torch.float16) for _ in range(3))
"""
# Its blocks of shell are one session: the worked example of a broken build.
ONE_SESSION = ("docs/support.md",)


def sessions(results: bool) -> Iterator[list[Command]]:
    """What runs in one shell each, up to the last command that takes a GPU."""
    for path in documents():
        found = [b for b in blocks(path) if b.language == "sh"]
        per_block = [list(commands_of(block)) for block in found]
        if not found or (found[0].document.startswith("docs/results/") and not results):
            continue
        if found[0].document in ONE_SESSION:
            per_block = [[command for commands in per_block for command in commands]]
        for commands in per_block:
            last = max((i for i, command in enumerate(commands) if command.on_gpu), default=-1)
            if last >= 0:
                yield commands[: last + 1]


def examples() -> Iterator[Block]:
    """The blocks of Python that take a GPU."""
    for path in documents():
        yield from (b for b in blocks(path) if b.language == "python" and b.on_gpu)


def in_shell(commands: list[Command]) -> str:
    lines = []
    for command in commands:
        expected = 1 if "must fail" in command.comment or "must exit" in command.comment else 0
        lines += [command.text, f"ended {command.document}:{command.line} $? {expected}"]
    return "\n".join(["(", *lines, ")"])


def in_python(block: Block) -> str:
    return f"python - <<'END'\n{TENSORS}{block.text}END\nended {block} $? 0"


def script(results: bool) -> str:
    parts = [*map(in_shell, sessions(results)), *map(in_python, examples())]
    return "\n".join([HEAD, *parts, TAIL])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=f"python -m tests.docs.{Path(__file__).stem}")
    parser.add_argument("--results", action="store_true", help="also those of docs/results")
    print(script(parser.parse_args().results), end="")
