"""Every command and every code block of the documents works: it runs here, or its program takes its
arguments, or it says that it takes a GPU, and is one of those that `gpu_commands.py` prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flash_attention
from flash_attention import operators
from flash_helpers.emulator import compile_kernel
from tests.emulator.support import cuda_to_ptx

from . import gpu_commands, shell
from .blocks import LANGUAGES, Block, Command, blocks, commands_in_text, commands_of
from .markdown import BOOK, ROOT, documents

BLOCKS = [block for path in documents() for block in blocks(path)]
COMMANDS = [command for b in BLOCKS if b.language == "sh" for command in commands_of(b)]
IN_TEXT = [command for path in documents() for command in commands_in_text(path)]

# What is run here as it stands: (exit code, the document holds every line that it prints).
RUN = {
    "python tools/benchmark/profiling.py waves --blocks 300 --sms 132": (0, True),
    "python tools/benchmark/profiling.py bottleneck --known --csv "
    "docs/results/raw/2026-11-21-h200-known-bottlenecks.csv": (0, False),
    "python tools/benchmark/regimes.py --show "
    "docs/results/raw/2026-11-21-h200-hopper-regimes.jsonl": (0, True),
    "python tools/benchmark/accuracy.py --show docs/results/raw/2026-11-22-h200-accuracy.jsonl": (
        1,
        True,
    ),
    "diff previous_kernels/08*/forward.cuh previous_kernels/09*/forward.cuh": (1, False),
}
# Blocks that other tests run, all of a language in a document, and those tests.
RUN_ELSEWHERE = {
    ("README.md", "python"): "tests/docs/test_docs.py",
    ("py/flash_helpers/emulator/README.md", "python"): "tests/emulator/test_readme.py",
    ("py/flash_helpers/emulator/README.md", "cuda"): "tests/emulator/test_readme.py",
    ("py/flash_helpers/emulator/README.md", "text"): "tests/emulator/test_readme.py",
    ("README.md", "text"): "tests/docs/test_outputs.py",
    ("docs/support.md", "text"): "tests/docs/test_outputs.py",
    **{
        (f"docs/book/{page.name}", "python"): "tests/docs/test_book.py"
        for page in BOOK.glob("*.md")
    },
}
# Other blocks of text, by their first words: what they are, or the test that compares them.
TEXT = {
    ("docs/architecture.md", "tools, tests"): "a drawing",
    ("docs/kernels/05-sm90-backward.md", "cycle | tensor cores"): "drawings",
    ("docs/profiling.md", "300 blocks on 132 SMs"): "RUN",
    ("docs/results/accuracy-h200.md", "8 bars are missed"): "RUN",
    ("py/flash_helpers/emulator/README.md", "PTX text"): "a drawing",
}


def _with_tensors() -> dict[str, Any]:
    q, k, v = (torch.randn(1, 64, 1, 128, dtype=torch.float16) for _ in range(3))
    return {"flash_attention": flash_attention, "q": q, "k": k, "v": v}


def _with_a_model() -> dict[str, Any]:
    return {"model": torch.nn.Sequential(torch.nn.Linear(4, 4))}


def _with_a_kernel() -> dict[str, Any]:
    cuda = """struct alignas(64) Map { char bytes[128]; };
    extern "C" __global__ void take(const __grid_constant__ Map map) {}"""
    kernel = compile_kernel(cuda_to_ptx(cuda), "take")
    return {"np": np, "kernel": kernel, "grid": (1, 1, 1), "block": (32, 1, 1), "shared_bytes": 0}


def _with_operators() -> dict[str, Any]:
    weight, target = torch.ones(1000), torch.zeros(4, dtype=torch.int64)
    return {"operators": operators, "torch": torch, "weight": weight, "target": target}


# What the Python of a document finds around it.
SURROUNDINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/measuring.md": _with_tensors,
    "docs/operators.md": _with_operators,
    "docs/profiling.md": _with_a_model,
    "docs/support.md": dict,
    "py/flash_helpers/emulator/sm90/README.md": _with_a_kernel,
}


def unclear(block: Block) -> str:
    """Why nobody would notice that a block is wrong, or an empty text."""
    if block.language not in LANGUAGES:
        return f"{block} has the language {block.language!r}: one of {', '.join(LANGUAGES)}"
    if block.language == "sh" or block.on_gpu or (block.document, block.language) in RUN_ELSEWHERE:
        return ""
    if block.language == "text":
        listed = any(block.document == d and block.text.startswith(w) for d, w in TEXT)
        return "" if listed else f"{block} is not in TEXT"
    runs = block.language == "python" and block.document in SURROUNDINGS
    return "" if runs else f"{block} is run by no test, and does not say that it takes a GPU"


def wrong(command: Command) -> str:
    """Why a command would not start, or an empty text."""
    try:
        shell.check(command.text)
        programs = {words[0] for words in shell.commands(command.text)}
    except (ValueError, OSError) as error:
        return f"{command}: {error}"
    if programs & set(shell.NEED_A_GPU) and not command.on_gpu:
        return f"{command} takes a GPU, and does not say so"
    return ""


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_checked(block: Block) -> None:
    assert unclear(block) == ""


def test_what_runs_elsewhere_names_its_document() -> None:
    constants = {"README.md": "README", "support.md": "SUPPORT"}
    for (document, language), test in RUN_ELSEWHERE.items():
        assert constants.get(Path(document).name, "BOOK") in (ROOT / test).read_text(), test
        assert any((b.document, b.language) == (document, language) for b in BLOCKS), document


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{c.document}:{c.line}")
def test_commands_start(command: Command) -> None:
    assert wrong(command) == ""


def test_commands_in_running_text_start() -> None:
    assert len(IN_TEXT) > 20
    problems = [wrong(command) for command in IN_TEXT]
    assert [problem for problem in problems if problem] == []


@pytest.mark.parametrize("text", RUN)
def test_commands_run(text: str) -> None:
    documents_with = {command.document for command in COMMANDS if command.text == text}
    assert documents_with, "no document has this command any more"
    code, printed = RUN[text]
    script = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", text)
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'py'}:{ROOT}"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == code, ran.stderr
    if printed:
        lines = [line for line in ran.stdout.splitlines() if line.strip()]
        for document in documents_with:
            shown = (ROOT / document).read_text().splitlines()
            assert lines and [line for line in lines if line not in shown] == []


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if b.language == "python" and not b.on_gpu and b.document in SURROUNDINGS],
    ids=str,
)
def test_python_runs(block: Block) -> None:
    surroundings = SURROUNDINGS[block.document]()
    try:
        exec(block.text, surroundings)
    except (flash_attention.KernelNotBuiltError, flash_attention.LibraryNotFoundError, LookupError):
        pytest.skip("this build does not have the example's kernel")


def test_commands_for_a_gpu_are_printed() -> None:
    script = gpu_commands.script(results=True)
    subprocess.run(["bash", "-n", "-c", script], check=True)
    marked = [command for command in COMMANDS if command.on_gpu]
    assert len(marked) > 20
    for command in marked:
        assert f"{command.text}\nended {command.document}:{command.line} " in script
    for block in BLOCKS:
        assert not (block.language == "python" and block.on_gpu) or block.text in script


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```sh\npython tools/benchmark/pt_bench.py --no_such_option\n```\n", "does not take"),
        ("```sh\npython tools/benchmark/no_such_tool.py\n```\n", "there is no"),
        ("```sh\nmake no-such-target\n```\n", "no target"),
        ("```sh\nKERNELS=none make build\n```\n", "none"),
        ("```sh\npython -m pytest tests/no_such_folder\n```\n", "does not exist"),
        ("```sh\nfrobnicate\n```\n", "is unknown"),
        ("```sh\nncu -o x python tools/benchmark/run_kernels.py 256\n```\n", "takes a GPU"),
        ("```sh\nncu python tools/benchmark/run_kernels.py --x  # on a GPU\n```\n", "not take"),
        ("```python\nundefined()\n```\n", "run by no test"),
        ("```\nsome output\n```\n", "has the language ''"),
        ("```text\nsome output\n```\n", "is not in TEXT"),
        ("so:\n\n    make test\n", "without a fence"),
        ("Run `make nothing`.\n", "no target"),
    ],
)  # fmt: skip
def test_a_planted_block_is_found(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    try:
        found = [unclear(block) for block in blocks(path)]
        commands = [c for b in blocks(path) if b.language == "sh" for c in commands_of(b)]
        found += [wrong(command) for command in [*commands, *commands_in_text(path)]]
    except ValueError as error:
        found = [str(error)]
    assert words in "".join(found)


@pytest.mark.parametrize(
    ("code", "expected", "verdict"),
    [(0, 0, "ok"), (4, 0, "WRONG"), (0, 1, "WRONG"), (1, 1, "ok"), (130, 1, "WRONG")],
)
def test_the_script_for_a_gpu_says_what_went_wrong(code: int, expected: int, verdict: str) -> None:
    script = f"{gpu_commands.HEAD}ended place {code} {expected}\n{gpu_commands.TAIL}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert ran.stdout.startswith(f"{verdict}: place ended with {code}")
    assert ran.returncode == (verdict == "WRONG")
