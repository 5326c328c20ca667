"""The names that flash_attention.operators offers."""

import importlib
import pkgutil

from flash_attention import operators


def test_no_module_hides_an_operator() -> None:
    """Importing a module sets the package's attribute of its name."""
    modules = {module.name for module in pkgutil.iter_modules(operators.__path__)}
    assert modules & set(operators.__all__) == set()


def test_every_operator_is_there_and_says_what_it_does() -> None:
    assert dir(operators) == sorted(operators.__all__)
    for name in operators.__all__:
        assert getattr(operators, name).__doc__, name
    importlib.import_module("flash_attention.operators.losses.calls")
    assert callable(operators.cross_entropy)
