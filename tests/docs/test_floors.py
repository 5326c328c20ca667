"""The floors of the Python sources (docs/architecture.md): a module imports only what stands on
floors below its own, or in its own room; inside functions too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .import_graph import Import, imports, imports_of, modules
from .markdown import ROOT

# From the bottom to the top. Rooms on one floor do not see each other. A module belongs to the room
# with the longest name that its own name begins with.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("flash_helpers", "flash_lab", "flash_helpers.csrc"),
    ("flash_helpers.base",),
    ("flash_helpers.compilers",),
    ("flash_helpers.emulator",),
    ("flash_helpers.kernels",),
    ("flash_helpers.codegen",),
    ("flash_helpers.build",),
    ("flash_helpers.check",),
    ("flash_helpers.kernel_configs", "flash_helpers.test"),
    ("flash_attention.checks",),
    ("flash_attention.triton_kit",),
    ("flash_attention.gluon", "flash_attention.operators", "flash_attention.triton"),
    ("flash_attention",),
    ("flash_attention_kernels", "flash_lab.arguments", "flash_lab.provenance"),
    ("flash_lab.correctness",),
    ("flash_lab.sass",),
    ("flash_lab.waves",),
    ("flash_lab.bench",),
    ("flash_lab.accuracy",),
    ("flash_lab.profiling",),
    ("flash_lab.operators", "flash_lab.steps_report", "flash_lab.ws_analysis"),
    ("tools", "flash_helpers.profiling"),
)
# Other names for what stands elsewhere, for users: nothing inside takes them.
FACES = (
    "flash_attention_kernels",
    "flash_helpers.kernel_configs",
    "flash_helpers.profiling",
    "flash_helpers.test",
)
ROOMS = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module: str) -> str:
    while module not in ROOMS:
        module = module.rpartition(".")[0]
    return module


def goes_up(found: Import) -> bool:
    user, used = room_of(found.user), room_of(found.used)
    return user != used and ROOMS[used] >= ROOMS[user]


def test_every_import_goes_down() -> None:
    found = imports(ROOT)
    assert len(found) > 500, "the graph is not whole"
    assert [str(i) for i in found if goes_up(i)] == []


def test_nothing_inside_imports_a_face() -> None:
    inside = [i for i in imports(ROOT) if not i.user.startswith(FACES)]
    assert [str(i) for i in inside if i.used.startswith(FACES)] == []


def test_every_room_exists() -> None:
    known = modules(ROOT)
    empty = [
        room
        for room in ROOMS
        if room not in ("tools", "flash_helpers.csrc")
        and not any(room_of(module) == room for module in known)
    ]
    assert empty == []


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("flash_helpers.base.dtypes", "from ..kernels import contract"),
        ("flash_helpers.kernels.contract", "def f():\n    import flash_attention\n"),
        ("flash_helpers.codegen.files", "def f():\n    from ..build.driver import build\n"),
        ("flash_helpers.emulator.errors", "import flash_lab.bench.store as store"),
        ("flash_attention.front_door", "def f():\n    from flash_lab.bench import store\n"),
        ("flash_attention.gluon.launch", "from ..triton.launch import attention"),
        ("flash_attention.checks.memory", "from .. import dispatch"),
        (
            "flash_helpers.check.peers",
            "import importlib\nimportlib.import_module('flash_attention.interface')",
        ),
        ("flash_lab.bench.store", "if TYPE_CHECKING:\n    from ..profiling import trace\n"),
    ],
)
def test_a_planted_import_is_found(module: str, statement: str) -> None:
    known = modules(ROOT)
    text = known[module].read_text()
    assert not any(map(goes_up, imports_of(module, text, known)))
    wrong = [i for i in imports_of(module, f"{text}\n{statement}\n", known) if goes_up(i)]
    assert len(wrong) == 1


def test_the_registry_does_not_load_the_emulator() -> None:
    """Every build, tool and import of the library asks it, and few of them emulate."""
    code = (
        "import sys, flash_helpers.kernel_configs; "
        "sys.exit('flash_helpers.emulator' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "py")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)


def test_the_lower_floors_import_neither_torch_nor_the_library() -> None:
    """Every module of flash_helpers, in one process in which both cannot be imported."""
    library = ROOMS["flash_attention.checks"]
    below = [name for name in modules(ROOT) if ROOMS[room_of(name)] < library]
    names = [name for name in below if name != "flash_lab" and not name.endswith("__main__")]
    code = (
        "import importlib, sys\n"
        "sys.modules['torch'] = sys.modules['flash_attention'] = sys.modules['flash_lab'] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "py")}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
