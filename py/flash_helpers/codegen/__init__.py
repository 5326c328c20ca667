"""From configurations to C++: translation units, the kernel table and the manifest."""

from .files import write_if_changed
from .generate import generate
from .manifest import KernelRecord, Manifest, load_manifest
from .render import render_kernel, render_registry, render_translation_unit
from .sources import source_fingerprint

__all__ = [
    "KernelRecord",
    "Manifest",
    "generate",
    "load_manifest",
    "render_kernel",
    "render_registry",
    "render_translation_unit",
    "source_fingerprint",
    "write_if_changed",
]
