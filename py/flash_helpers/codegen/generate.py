"""Filling a build folder with the sources of a set of kernels."""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..base.safe_read import read_regular
from ..kernels.contract import KernelConfig, config_order
from ..kernels.registry import family_of
from .files import check_output_folder, has_content, write_if_changed
from .manifest import MANIFEST_NAME, KernelRecord, Manifest
from .render import (
    MARKER,
    check_buildable,
    render_launcher_registry,
    render_registry,
    render_translation_unit,
)
from .sources import source_fingerprint

REGISTRY_NAME = "kernel_registry.cpp"


def generate(
    out_dir: Path,
    configs: Sequence[KernelConfig],
    *,
    configs_per_unit: int | None = None,
    or_none: bool = False,
) -> Manifest:
    """Write the translation units, the kernel table and `manifest.json` to `out_dir`. A unit has at
    most `configs_per_unit` configurations, or as many as their family says. With `or_none` there
    may be no configurations, and so no units.

    The same arguments give the same bytes. Files that do not change are not touched; files of
    an earlier run that are no longer needed are removed, and nothing else is.
    """
    if configs_per_unit is not None and configs_per_unit < 1:
        raise ValueError(f"configs_per_unit must be at least 1, got {configs_per_unit}")
    folder = check_output_folder(out_dir)
    none = or_none and not configs
    in_order = [] if none else sorted(check_buildable(configs), key=config_order)
    texts: dict[str, str] = {}
    kernels: list[KernelRecord] = []
    for file, unit in split_into_units(in_order, configs_per_unit).items():
        texts[file] = render_translation_unit(unit)
        fingerprint = source_fingerprint(texts[file])
        kernels += [KernelRecord(config, file, fingerprint) for config in unit]
    texts[REGISTRY_NAME] = render_launcher_registry() if none else render_registry(in_order)
    manifest = Manifest(
        configs_per_unit=configs_per_unit,
        kernels=tuple(sorted(kernels, key=lambda kernel: kernel.name)),
        registry=REGISTRY_NAME,
        files=tuple(sorted(texts)),
    )
    _write(folder, manifest, texts)
    return manifest


def split_into_units(
    configs: Sequence[KernelConfig], configs_per_unit: int | None
) -> dict[str, list[KernelConfig]]:
    """File name -> its configurations, of one family. The larger the head dimension, the more there
    is to compile: so they are dealt out like cards, from the largest on, to and fro, which gives
    units of similar cost."""
    if configs_per_unit == 1:
        return {f"{config.kernel_name()}.cu": [config] for config in configs}
    units: dict[str, list[KernelConfig]] = {}
    for family in sorted({config.FAMILY for config in configs}):
        members = [config for config in configs if family == config.FAMILY]
        n_units = -(-len(members) // (configs_per_unit or family_of(members[0]).CONFIGS_PER_UNIT))
        for i, hand in enumerate(_deal(members, n_units)):
            units[f"flash_fwd_{family}_unit_{i:03}.cu"] = hand
    return units


def _deal(configs: Sequence[KernelConfig], n_hands: int) -> list[list[KernelConfig]]:
    hands: list[list[KernelConfig]] = [[] for _ in range(n_hands)]
    for i, config in enumerate(sorted(configs, key=lambda config: -config.d_head)):
        turn, place = divmod(i, n_hands)
        hands[place if turn % 2 == 0 else n_hands - 1 - place].append(config)
    return hands


def _write(folder: Path, manifest: Manifest, texts: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST_NAME
    stale = _files_of_earlier_runs(path) - set(manifest.files)
    changed = stale or any(not has_content(folder / name, text) for name, text in texts.items())
    if changed:
        # Should this run be interrupted, the next one finds here what is ours.
        union = tuple(sorted(stale | set(manifest.files)))
        journal = dataclasses.replace(manifest, files=union, complete=False)
        write_if_changed(path, journal.to_json())
    for name, text in texts.items():
        write_if_changed(folder / name, text)
    _remove(folder, stale)
    write_if_changed(path, manifest.to_json())


def _files_of_earlier_runs(manifest_path: Path) -> set[str]:
    """What the folder's manifest lists, complete or not; nothing if it cannot be read."""
    try:
        return set(Manifest.from_json(read_regular(manifest_path)).files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove files that the manifest lists. It lies in a build folder that anyone may have
    edited, so a name must be plain and the file must start as ours do."""
    for name in names:
        path = folder / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            is_ours = file.read(len(MARKER)) == MARKER.encode()
        if is_ours:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
