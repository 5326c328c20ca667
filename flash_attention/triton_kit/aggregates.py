"""Several values as one argument of a device function, the same in every release of triton."""

from __future__ import annotations

from typing import Any

from triton.language import core

# Of a field that Triton may take for a constant: it does so with an argument that is 1.
Value = core.base_value


def aggregate(cls: type) -> Any:
    """Makes a Triton value of a class whose annotations are its fields; made from keywords only.

    The __init__ is ours: 3.8 writes one, 3.6 and 3.7 do not. Triton does not hash it (it is called
    a builtin): a field that is added, removed or renamed changes the text of every call anyway.
    """
    names = frozenset(cls.__annotations__)

    def __init__(self: Any, **fields: Any) -> None:
        if fields.keys() != names:
            raise TypeError(f"{cls.__name__} has the fields {sorted(names)}, not {sorted(fields)}")
        for name, value in fields.items():
            setattr(self, name, value)

    __init__.__triton_builtin__ = True  # type: ignore[attr-defined]
    cls.__init__ = __init__  # type: ignore[misc]
    return core._aggregate(cls)
