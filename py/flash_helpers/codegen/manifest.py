"""`manifest.json`: which kernels a build folder holds, from which files, made from what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.safe_read import parse_json, read_regular
from ..kernels.contract import KernelConfig
from ..kernels.names import parse_kernel_name_into_config

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class KernelRecord:
    """One kernel. `file` is relative to the manifest; `fingerprint` covers its unit's source and
    the headers of ours that it reads."""

    config: KernelConfig
    file: str
    fingerprint: str

    @property
    def name(self) -> str:
        return self.config.kernel_name()


@dataclass(frozen=True)
class Manifest:
    """All that was generated. `complete` is false while files are being written, so that what
    an interrupted run left is recognised as ours by the next."""

    configs_per_unit: int | None  # None: as the families say
    kernels: tuple[KernelRecord, ...]
    registry: str
    files: tuple[str, ...]
    complete: bool = True

    def units(self, family: str | None = None) -> list[str]:
        """The CUDA sources (of one family of kernels), in the order of their names."""
        kernels = (k for k in self.kernels if family in (None, k.config.FAMILY))
        return sorted({kernel.file for kernel in kernels})

    def configs_of_a_unit(self, family: str) -> float:
        """How many configurations a family's unit has on average."""
        n_configs = sum(family == kernel.config.FAMILY for kernel in self.kernels)
        return n_configs / max(len(self.units(family)), 1)

    def to_json(self) -> str:
        data = {
            "schema_version": SCHEMA_VERSION,
            "complete": self.complete,
            "configs_per_unit": self.configs_per_unit,
            "registry": self.registry,
            "units": self.units(),
            "files": list(self.files),
            "kernels": [_kernel_to_dict(kernel) for kernel in self.kernels],
        }
        return json.dumps(data, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Raises ValueError, KeyError, TypeError or AttributeError for what is no manifest."""
        data = parse_json(text)
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema version {version!r} is not {SCHEMA_VERSION}")
        per_unit = data["configs_per_unit"]
        return cls(
            configs_per_unit=None if per_unit is None else int(per_unit),
            kernels=tuple(_kernel_from_dict(kernel) for kernel in data["kernels"]),
            registry=str(data["registry"]),
            files=tuple(map(str, data["files"])),
            complete=bool(data["complete"]),
        )


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a generated folder; a clear error if it is absent, foreign or unfinished."""
    path = folder / MANIFEST_NAME
    try:
        manifest = Manifest.from_json(read_regular(path))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: generate the kernels first") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a manifest: {error}; generate the kernels again") from None
    if not manifest.complete:
        raise ValueError(f"{path} is of an interrupted run: generate the kernels again")
    return manifest


def _kernel_to_dict(kernel: KernelRecord) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "short_form": kernel.config.short_form(),
        "config": _fields(kernel.config),
        "file": kernel.file,
        "fingerprint": kernel.fingerprint,
    }


def _fields(config: KernelConfig) -> dict[str, Any]:
    return config.values() | {"dtype": config.dtype.name}


def _kernel_from_dict(data: dict[str, Any]) -> KernelRecord:
    config = parse_kernel_name_into_config(str(data["name"]))
    if data["config"] != _fields(config):
        raise ValueError(f"kernel {data['name']!r} does not have the fields of its name")
    return KernelRecord(config, str(data["file"]), str(data["fingerprint"]))
