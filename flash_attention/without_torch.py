"""Without PyTorch the package can be imported, and says what it is; nothing of it can be called."""

import importlib
from collections.abc import Collection
from types import ModuleType

MESSAGE = (
    "flash_attention needs PyTorch 2.4 or newer, which it does not install, as the right build "
    "depends on the GPU's driver: pytorch.org says which, or `pip install torch`. Without it "
    "kernels can be built (python -m flash_helpers.build), not called"
)


def is_about_torch(error: ModuleNotFoundError) -> bool:
    return error.name == "torch"


def require_torch() -> None:
    """Raises ModuleNotFoundError that says what to install."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if not is_about_torch(error):
            raise
        raise ModuleNotFoundError(MESSAGE, name="torch") from None


def refuse(module: ModuleType, names: Collection[str]) -> None:
    """Whoever asks the module for one of the names that it has not got is told what is missing."""

    def missing(name: str) -> object:
        if name in names:
            raise ModuleNotFoundError(MESSAGE, name="torch")
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__dict__["__getattr__"] = missing
