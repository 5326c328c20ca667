"""Generated folders: deterministic, written only when changed, cleaned, never poisoned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flash_helpers.build.driver import order_of_families
from flash_helpers.codegen import Manifest, generate, load_manifest, source_fingerprint
from flash_helpers.codegen import files as codegen_files
from flash_helpers.codegen import generate as _function
from flash_helpers.codegen.render import MARKER
from flash_helpers.kernel_configs import get_kernel_configs, get_kernels_to_build
from flash_helpers.kernels.registry import families

REPOSITORY = Path(__file__).resolve().parents[2]
TOOL = REPOSITORY / "tools" / "build" / "generate_kernel_instantiations.py"
PROG = get_kernel_configs("prog")
module = sys.modules[_function.__module__]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("per_unit", [1, 3, 4, 100])
def test_every_kernel_is_in_exactly_one_unit(tmp_path: Path, per_unit: int) -> None:
    manifest = generate(tmp_path, PROG, configs_per_unit=per_unit)
    units = manifest.units()
    assert len(units) == -(-len(PROG) // per_unit)
    text = "".join((tmp_path / unit).read_text() for unit in units)
    for config in PROG:
        assert text.count(f"\n{config.kernel_name()}(const") == 1
    assert sorted(contents(tmp_path)) == sorted([*manifest.files, "manifest.json"])
    assert {record.config for record in manifest.kernels} == set(PROG)
    for record in manifest.kernels:
        assert f"\n{record.name}(const" in (tmp_path / record.file).read_text()
    if per_unit == 1:
        assert {record.file for record in manifest.kernels} == {
            f"{config.kernel_name()}.cu" for config in PROG
        }


def test_a_unit_has_as_many_configurations_as_its_family_says(tmp_path: Path) -> None:
    manifest = generate(tmp_path, get_kernels_to_build("all"))
    assert Manifest.from_json(manifest.to_json()) == manifest
    most = {}
    for family in families():
        texts = [(tmp_path / unit).read_text() for unit in manifest.units(family.NAME)]
        most[family.NAME] = max(text.count("constexpr auto kConfig") for text in texts)
    assert most["sm80"] == 8 and most["sm90"] == 4
    assert all(most[family.NAME] <= family.CONFIGS_PER_UNIT for family in families())


def test_units_of_a_family_get_head_dimensions_alike(tmp_path: Path) -> None:
    manifest = generate(tmp_path, get_kernels_to_build("all"))
    for name in ("sm90", "sm90_bwd", "sm90_serve"):
        sums = [
            sum(kernel.config.d_head for kernel in manifest.kernels if kernel.file == unit)
            for unit in manifest.units(name)
        ]
        assert len(sums) >= 4 and max(sums) <= 1.55 * min(sums), (name, sums)


def test_the_same_configurations_give_the_same_bytes(tmp_path: Path) -> None:
    generate(tmp_path / "a", PROG)
    generate(tmp_path / "b", list(reversed(PROG)))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_second_run_touches_nothing(tmp_path: Path) -> None:
    generate(tmp_path, PROG)
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    generate(tmp_path, PROG)
    assert {path.stat().st_mtime for path in tmp_path.iterdir()} == {1}


def test_only_what_changed_is_written_again(tmp_path: Path) -> None:
    manifest = generate(tmp_path, PROG, configs_per_unit=1)
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    victim = tmp_path / manifest.units()[0]
    victim.write_text("damaged")
    before = load_manifest(tmp_path)
    generate(tmp_path, PROG, configs_per_unit=1)
    touched = {path.name for path in tmp_path.iterdir() if path.stat().st_mtime != 1}
    assert touched == {victim.name, "manifest.json"}
    assert load_manifest(tmp_path) == before


def test_stale_files_of_ours_are_removed_and_nothing_else(tmp_path: Path) -> None:
    old = generate(tmp_path, PROG, configs_per_unit=1)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "copy.cu").write_text((tmp_path / old.units()[0]).read_text())
    replaced = tmp_path / old.units()[1]
    replaced.write_text("// hand-written, under a generated name\n")
    generate(tmp_path, PROG[:1], configs_per_unit=2)
    kept = {"notes.txt", "copy.cu", replaced.name}
    expected = {"flash_fwd_sm80_unit_000.cu", "kernel_registry.cpp", "manifest.json"}
    assert set(contents(tmp_path)) == kept | expected


def test_a_manifest_cannot_remove_files_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "generated"
    generate(folder, PROG)
    victims = [tmp_path / "victim.cu", folder / "sub" / "victim.cu"]
    (folder / "sub").mkdir()
    for victim in victims:
        victim.write_text(MARKER + "\n")
    link = folder / "link.cu"
    link.symlink_to(victims[0])
    data = json.loads((folder / "manifest.json").read_text())
    names = ["../victim.cu", "sub/victim.cu", str(victims[0]), "link.cu", "sub", "", "..", "gone"]
    data["files"] += names
    (folder / "manifest.json").write_text(json.dumps(data))
    generate(folder, PROG[:1])
    assert all(victim.exists() for victim in victims) and link.is_symlink()


def test_an_interrupted_run_is_recognised_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(tmp_path, PROG[:2], configs_per_unit=1)
    whole, calls = codegen_files.write_if_changed, 0

    def dies(path: Path, text: str) -> bool:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return whole(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_if_changed", dies)
        with pytest.raises(KeyboardInterrupt):
            generate(tmp_path, PROG, configs_per_unit=1)
    with pytest.raises(ValueError, match="interrupted run: generate the kernels again"):
        load_manifest(tmp_path)
    manifest = generate(tmp_path, PROG[3:4], configs_per_unit=1)
    assert set(contents(tmp_path)) == {*manifest.files, "manifest.json"}
    assert load_manifest(tmp_path) == manifest


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.cu"
    path.write_text("old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        codegen_files.write_if_changed(path, "new")
    assert contents(tmp_path) == {"file.cu": b"old"}


@pytest.mark.parametrize("folder", ["", "csrc", "csrc/generated", "py/x", "tests", "csrc/../docs"])
def test_the_source_tree_is_never_written_to(folder: str) -> None:
    with pytest.raises(ValueError, match="belongs to the sources"):
        generate(REPOSITORY / folder, PROG)
    assert not (REPOSITORY / "csrc" / "generated").exists()


def test_a_link_into_the_source_tree_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(REPOSITORY / "csrc")
    with pytest.raises(ValueError, match="belongs to the sources"):
        generate(tmp_path / "link" / "generated", PROG)


def test_bad_arguments_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="configs_per_unit must be at least 1, got 0"):
        generate(tmp_path / "out", PROG, configs_per_unit=0)
    with pytest.raises(ValueError, match="nothing to generate"):
        generate(tmp_path / "out", [])
    assert not (tmp_path / "out").exists()


def test_the_manifest_reads_back(tmp_path: Path) -> None:
    manifest = generate(tmp_path, get_kernel_configs("all"))
    assert load_manifest(tmp_path) == manifest == Manifest.from_json(manifest.to_json())
    entries = json.loads((tmp_path / "manifest.json").read_text())["kernels"]
    entry = next(e for e in entries if e["name"].startswith("flash_fwd_sm80_bf16"))
    assert set(entry) == {"name", "short_form", "config", "file", "fingerprint"}
    assert entry["config"]["dtype"] == "BF16" and entry["config"]["async_copy"] is True
    assert [record.name for record in manifest.kernels] == sorted(
        config.kernel_name() for config in get_kernel_configs("all")
    )


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "null", '{"schema_version": 2}', '{"schema_version": 1}'],
)
def test_a_foreign_manifest_is_an_error_and_the_next_run_replaces_it(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match="is not a manifest"):
        load_manifest(tmp_path)
    generate(tmp_path, PROG)
    assert load_manifest(tmp_path).kernels


def test_a_missing_manifest_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="generate the kernels first"):
        load_manifest(tmp_path)


def test_a_tampered_entry_is_an_error(tmp_path: Path) -> None:
    generate(tmp_path, PROG)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"B_r": 64', '"B_r": 128', 1))
    with pytest.raises(ValueError, match="does not have the fields of its name"):
        load_manifest(tmp_path)


def test_the_fingerprint_follows_the_headers_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n#include <vector>\n')
    (tmp_path / "b.h").write_text('#pragma once\n  #  include "a.h"\nint b;\n')
    (tmp_path / "unused.h").write_text("int c;\n")
    unit = '#include "a.h"\n'
    first = source_fingerprint(unit, tmp_path)
    (tmp_path / "unused.h").write_text("int d;\n")
    assert source_fingerprint(unit, tmp_path) == first
    (tmp_path / "b.h").write_text((tmp_path / "b.h").read_text().replace("int b", "int x"))
    assert source_fingerprint(unit, tmp_path) != first
    assert source_fingerprint(unit + "\n", tmp_path) != source_fingerprint(unit, tmp_path)
    (tmp_path / "b.h").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.h"):
        source_fingerprint(unit, tmp_path)


def run_tool(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("KERNELS", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, TOOL, *arguments],
        env=clean | environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_the_tool_builds_what_the_environment_selects(tmp_path: Path) -> None:
    ran = run_tool("--out", str(tmp_path / "out"), KERNELS="64,32")
    assert ran.returncode == 0, ran.stderr
    records = load_manifest(tmp_path / "out").kernels
    assert sorted(record.config for record in records) == get_kernel_configs("64,32")
    assert "16 kernels in 2 units" in ran.stdout


def test_the_tool_lists_the_union_of_its_words() -> None:
    ran = run_tool("--list", "--kernels", "prog", "--kernels", "64,64", KERNELS="progall")
    expected = get_kernels_to_build("prog", "64,64")
    assert [line.split("  ")[0] for line in ran.stdout.splitlines()] == [
        config.kernel_name() for config in expected
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--list", "--kernels", "progGARBAGE"], "expected exactly one of prog, progall"),
        (["--list", "--kernels", ""], "expected one of prog, progall"),
        (["--kernels", "prog"], "--out is needed"),
        (["--kernels", "prog", "--out", "csrc"], "belongs to the sources"),
        (["--out", "build/x", "--configs-per-unit", "0"], "at least 1"),
        (["--out", "/dev/null/x"], "Not a directory"),
    ],
)
def test_the_tool_reports_usage_errors_with_exit_code_2(arguments: list[str], message: str) -> None:
    arguments = [str(REPOSITORY / a) if a in ("csrc", "build/x") else a for a in arguments]
    ran = run_tool(*arguments)
    assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr


def test_families_whose_units_take_longest_are_compiled_first(tmp_path: Path) -> None:
    """By the configurations that stand in the files."""
    manifest = generate(tmp_path, get_kernels_to_build("all"))
    order = order_of_families(manifest)
    assert sorted(order) == sorted(family.NAME for family in families())
    by_name = {family.NAME: family for family in families()}
    seconds = []
    for name in order:
        texts = [(tmp_path / unit).read_text() for unit in manifest.units(name)]
        n_configs = sum(text.count("constexpr auto kConfig") for text in texts)
        seconds.append(n_configs / len(texts) * by_name[name].COMPILE_SECONDS)
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > 2 * seconds[-1]


def test_a_family_without_kernels_comes_last(tmp_path: Path) -> None:
    manifest = generate(tmp_path, PROG)
    assert manifest.configs_of_a_unit("sm90") == 0
    assert order_of_families(manifest)[0] == "sm80"
