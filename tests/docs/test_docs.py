"""What the documents say about links, options, variables, words and exit codes is true."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flash_attention
from flash_helpers.base.tool import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NO_DATA,
    EXIT_OK,
    EXIT_PARTIAL,
    EXIT_USAGE,
)
from flash_helpers.kernel_configs import get_kernel_configs, parse_kernel_name_into_config
from flash_helpers.kernel_configs import valid_words as known_words

from .markdown import (
    README,
    ROOT,
    SUPPORT,
    anchors,
    between,
    code_blocks,
    code_words,
    documents,
    table,
)

# Upper-case strings in modules that read the environment, but no variables.
# LC_ALL is set for ncu, not read; GPU is a resource of Ray.
OTHER_STRINGS = {"AMD64", "EXT_SUFFIX", "GPU", "LC_ALL"}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{path.name}: {target} does not exist"
        if anchor:
            assert anchor in anchors(linked), f"{path.name}: {target} has no such heading"


@pytest.mark.parametrize("path", [README, SUPPORT], ids=lambda path: path.name)
def test_paths_exist(path: Path) -> None:
    """Files and folders of the repository that stand in backticks or behind `python`."""
    first = "csrc|docs|flash_attention|previous_kernels|py|tests|tools"
    found = re.findall(rf"(?<![\w/.-])((?:{first})/[\w./-]*)", path.read_text())
    assert len(found) > 10
    missing = {name for name in found if "_C." not in name and not (ROOT / name).exists()}
    assert not missing


def options_of(tool: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, ROOT / tool, "--help"],
        env={**os.environ, "COLUMNS": "500"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", ran.stdout))


def test_options_exist() -> None:
    """Every option on a line of shell that runs run_kernels.py, and those in running text."""
    known = options_of("tools/benchmark/run_kernels.py")
    assert {"--kernels", "--ref_v3", "--device"} <= known
    used: set[str] = set()
    for path in (README, SUPPORT):
        shell = "\n".join(code_blocks(path, "sh"))
        lines = [line for line in shell.splitlines() if "run_kernels.py" in line]
        words = [w for w in code_words(path.read_text()) if re.fullmatch(r"--[\w-]+", w)]
        for text in [*lines, *words]:
            used.update(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))
    assert len(used) >= 6 and used <= known, used - known


def variables_in_code() -> set[str]:
    """Upper-case string constants of every module that mentions the environment."""
    found: set[str] = set()
    folders = (ROOT / "py", ROOT / "flash_attention", ROOT / "tools")
    for path in [ROOT / "setup.py", *(p for folder in folders for p in folder.rglob("*.py"))]:
        text = path.read_text()
        if not re.search(r"\b(environ|getenv)\b", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"\A[A-Z][A-Z0-9_]{2,}\Z", node.value))
    for path in (path for path in (ROOT / "csrc").rglob("*") if path.is_file()):
        assert b"getenv" not in path.read_bytes(), f"{path} reads variables: extend this test"
    return {name for name in found - OTHER_STRINGS if not name.endswith("_SOURCES")}


def test_environment_variables_are_listed() -> None:
    listed = {w for row in table(README, "variables") for w in code_words(row[0])}
    assert listed == variables_in_code()


def test_makefile_variables_are_listed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    own = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE)) | {"SYSTEM", "PYTEST_ARGS"}
    sentence = README.read_text().partition("Makefile's own variables (")[2].partition(")")[0]
    assert set(code_words(sentence)) == own


def test_selection_words_are_listed() -> None:
    counts = {code_words(row[0])[0]: row[1] for row in table(README, "words")}
    blocks = {word for word in known_words() if "," in word}
    assert set(counts) - {"B_r,B_c"} == set(known_words()) - blocks
    for word, count in counts.items():
        if word != "B_r,B_c":
            assert len(get_kernel_configs(word)) == int(count), word
    sizes = [len(get_kernel_configs(word)) for word in blocks]
    assert counts["B_r,B_c"] == f"{min(sizes)} to {max(sizes)}"
    row = next(row for row in table(README, "words") if "B_r,B_c" in row[0])
    assert blocks == {word for word in code_words(row[2]) if "," in word}


def test_the_tables_of_the_readme_name_kernels() -> None:
    rows = re.findall(r"^\| \(.*$", README.read_text(), re.MULTILINE)
    prog = get_kernel_configs("prog")
    assert len(rows) >= 3 and all(parse_kernel_name_into_config(row) in prog for row in rows)


def test_the_lesson_is_wrapped() -> None:
    page = ROOT / "docs" / "kernels" / "02-sm90-forward.md"
    assert [line for line in page.read_text().splitlines() if len(line) > 120] == []


def test_figures_are_pending_or_numbers() -> None:
    for row in table(README, "results"):
        assert all(re.fullmatch(r"[0-9]+(\.[0-9]+)?", cell) for cell in row), row


def test_every_raw_measurement_has_its_line() -> None:
    page = ROOT / "docs" / "results" / "raw" / "README.md"
    listed = [word for row in table(page, "raw") for word in code_words(row[0])]
    assert listed == sorted(path.name for path in page.parent.iterdir() if path != page)


def test_exit_codes_of_run_kernels() -> None:
    row = next(row for row in table(SUPPORT, "exits") if "run_kernels.py" in row[0])
    named = (
        EXIT_OK, EXIT_FAILED, EXIT_USAGE,
        EXIT_PARTIAL, EXIT_NO_DATA, EXIT_INTERRUPTED,
    )  # fmt: skip
    head = re.findall(r"^\| tool \|(.*)\|$", between(SUPPORT, "exits"), re.MULTILINE)[0]
    assert tuple(int(cell) for cell in head.split("|")) == named
    assert all(row[1:])


def test_every_tool_has_its_exit_codes() -> None:
    named = {word for row in table(SUPPORT, "exits") for word in code_words(row[0])}
    tools = {str(path.relative_to(ROOT)) for path in (ROOT / "tools").glob("*/*.py")}
    assert tools <= named


@pytest.mark.parametrize(("number", "has_time"), [(0, False), (1, True)])
def test_the_examples_of_the_readme_run(number: int, has_time: bool, tmp_path: Path) -> None:
    examples = code_blocks(README, "python")
    assert len(examples) == 2
    (tmp_path / "example.py").write_text(examples[number])
    try:
        names = runpy.run_path(str(tmp_path / "example.py"))
    except flash_attention.KernelNotBuiltError:
        pytest.skip("this build does not have the example's kernel")
    lse, o, q = names["lse"], names["o"], names["q"]
    assert isinstance(lse, torch.Tensor) and bool(lse.isfinite().all())
    assert o.shape == q.shape and bool(o.isfinite().all())
    assert not has_time or names["ms"] > 0


def test_the_bugs_to_plant_are_still_where_they_are_said_to_be() -> None:
    """The sed command and the wait of the worked example in support.md."""
    flash = ROOT / "csrc" / "include" / "flash"
    script = "\n".join(code_blocks(SUPPORT, "sh"))
    found = re.search(r"sed -i 's/(.+)/(.+)/' \\\n +csrc/include/flash/(\S+)", script)
    assert found, "support.md has no sed command"
    assert len(re.findall(found[1].replace("(", r"\(").replace(")", r"\)"),
                          (flash / found[3]).read_text())) == 1  # fmt: skip
    kernel = (flash / "sm80" / "forward" / "forward.cuh").read_text()
    barrier = "load_wait<kConfig, 0>();\n      __syncthreads();  // V is visible; every warp"
    assert kernel.count(barrier) == 1
