"""Functions of flash-attn 2 under their own names, for code that imports that package:

    import flash_attention.compat as flash_attn

or, for code that cannot be changed, before it is imported:

    flash_attention.compat.install()

What is not here yet is not here at all: `hasattr` and `from ... import` say so, as with an older
flash-attn.
"""

import sys
from importlib.util import find_spec

from . import bert_padding
from .front_door import flash_attn_func
from .packed import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from .serving import flash_attn_varlen_func, flash_attn_with_kvcache

__all__ = [
    "bert_padding",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]

# Whose functions these are in names, arguments and results: code asks for it before it calls.
__version__ = "2.8.3"
_NAME = "flash_attn"
flash_attn_interface = sys.modules[__name__]


def install() -> None:
    """Makes `import flash_attn`, `flash_attn.flash_attn_interface` and `flash_attn.bert_padding`
    mean these modules, for the rest of the process. Raises RuntimeError where a package of that
    name is installed."""
    if sys.modules.get(_NAME) is not flash_attn_interface and find_spec(_NAME) is not None:
        raise RuntimeError(f"a package {_NAME} is installed here: uninstall it first")
    for name in (_NAME, f"{_NAME}.flash_attn_interface"):
        sys.modules[name] = flash_attn_interface
    sys.modules[f"{_NAME}.bert_padding"] = bert_padding
