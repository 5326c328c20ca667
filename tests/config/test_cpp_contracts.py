"""Python and C++ agree: field names, order, types, initialisers, argument layout."""

from __future__ import annotations

import dataclasses
import re
import timeit
from pathlib import Path
from types import ModuleType

import pytest

from flash_helpers.kernel_configs import (
    DType,
    FlashForwardKernelConfig,
    HopperForwardKernelConfig,
    KernelConfig,
    known_configs,
)
from flash_helpers.kernels import backward_args, forward_args, serve_args
from flash_helpers.kernels.sm80_bwd.config import AmpereBackwardKernelConfig
from flash_helpers.kernels.sm80_bwd_fused.config import AmpereFusedBackwardKernelConfig
from flash_helpers.kernels.sm80_serve.config import AmpereServeKernelConfig
from flash_helpers.kernels.sm80_serve_mla.config import AmpereMlaKernelConfig
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import FusedBackwardKernelConfig
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig
from tests.cpp_programs import lines_of
from tests.machine import slowness

INCLUDE = Path(__file__).resolve().parents[2] / "csrc" / "include"


def struct_fields(header: str, struct: str) -> list[tuple[str, str]]:
    """(type, name) of the data members of a struct, from the header's text."""
    text = re.sub(r"//[^\n]*", "", (INCLUDE / "flash" / header).read_text())
    body = re.search(rf"struct {struct} {{(.*?)^}};", text, re.S | re.M)
    assert body is not None
    member = r"^\s*((?:const )?\w+\*?) (\w+);"
    return [(m[1], m[2]) for m in re.finditer(member, body[1], re.M)]


@dataclasses.dataclass(frozen=True)
class Family:
    """What C++ and Python must agree on."""

    config: type[KernelConfig]
    header: str
    derived: tuple[str, ...]


FAMILIES = [
    Family(
        FlashForwardKernelConfig,
        "sm80/config.h",
        ("n_threads", "rows_per_warp", "smem_bytes", "min_blocks_per_sm"),
    ),
    Family(
        HopperForwardKernelConfig,
        "sm90/config.h",
        ("block_m", "n_threads", "smem_bytes", "swizzle_bytes", "chunk_columns", "n_chunks",
         "consumer_registers"),
    ),
    Family(
        AmpereBackwardKernelConfig,
        "sm80_bwd/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm"),
    ),
    Family(
        AmpereFusedBackwardKernelConfig,
        "sm80_bwd_fused/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm"),
    ),
    Family(
        HopperBackwardKernelConfig,
        "sm90_bwd/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm", "swizzle_bytes"),
    ),
    Family(
        ClusterBackwardKernelConfig,
        "sm90_bwd_cluster/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm"),
    ),
    Family(
        FusedBackwardKernelConfig,
        "sm90_bwd_fused/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm"),
    ),
    Family(
        AmpereServeKernelConfig,
        "sm80_serve/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm", "combining_blocks", "row_warps",
         "key_warps"),
    ),
    Family(
        AmpereMlaKernelConfig,
        "sm80_serve_mla/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm", "combining_blocks", "row_warps",
         "key_warps"),
    ),
    Family(
        HopperServeKernelConfig,
        "sm90_serve/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm", "block_m"),
    ),
    Family(
        HopperMlaKernelConfig,
        "sm90_serve_mla/config.h",
        ("n_threads", "smem_bytes", "min_blocks_per_sm", "combining_blocks"),
    ),
]  # fmt: skip


def by_name(family: Family) -> str:
    return family.config.__name__


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_config_fields_are_the_header_s_in_name_order_and_type(family: Family) -> None:
    python = [
        (str(f.type), f.name) for f in dataclasses.fields(family.config)
    ]  # the C++ types are spelt as Python's
    assert struct_fields(family.header, family.config.__name__) == python


def test_dtype_numbers_are_the_header_s() -> None:
    text = (INCLUDE / "flash" / "core" / "dtype.h").read_text()
    body = re.search(r"enum class DType : int {(.*?)}", text)
    assert body is not None
    found = {m[1]: int(m[2]) for m in re.finditer(r"k(\w+) = (\d+)", body[1])}
    assert found == {member.name: member.value for member in DType}
    assert [d.to_cpp_str() for d in DType] == ["flash::DType::kFP16", "flash::DType::kBF16"]


# C++ struct, its header, and the module that packs it, with the size that it says.
RECORDS = [
    ("ForwardArgs", "core/args.h", forward_args, forward_args.FORWARD_ARGS_SIZE),
    ("BackwardArgs", "core/backward_args.h", backward_args, backward_args.BACKWARD_ARGS_SIZE),
    ("ServeArgs", "core/serve_args.h", serve_args, serve_args.SERVE_ARGS_SIZE),
]
EVERY_RECORD = pytest.mark.parametrize(("struct", "header", "python", "size"), RECORDS)


@EVERY_RECORD
def test_argument_fields_are_the_header_s(
    struct: str, header: str, python: ModuleType, size: int
) -> None:
    names = [name for _, name in struct_fields(header, struct)]
    assert tuple(names) == python.FIELDS


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_the_bytes_of_a_configuration_are_the_struct_s(family: Family) -> None:
    configs = [config for config in known_configs() if type(config) is family.config]
    table = ", ".join(config.to_cpp_struct() for config in configs)
    packed = "".join(f"\\x{byte:02x}" for c in configs for byte in c.to_cpp_bytes())
    (same,) = lines_of(
        f'#include <cstdio>\n#include <cstring>\n#include "flash/{family.header}"\n'
        f"using Config = {configs[0].cpp_type()};\nconstexpr Config kConfigs[] = {{{table}}};\n"
        f'const char kPacked[] = "{packed}";\n'
        "int main() { int same = sizeof(kPacked) - 1 == sizeof(kConfigs);\n"
        "for (unsigned i = 0; i < sizeof(kConfigs) / sizeof(Config); ++i) { Config c;\n"
        "std::memcpy(static_cast<void*>(&c), kPacked + i * sizeof(c), sizeof(c));\n"
        'same += c == kConfigs[i]; } std::printf("%d\\n", same); }\n',
    )
    assert int(same) == 1 + len(configs)


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_cpp_initialisers_compile_to_the_same_values(family: Family) -> None:
    """Every known configuration, printed back by C++ with its derived sizes."""
    configs = [config for config in known_configs() if type(config) is family.config]
    assert configs
    members = [f.name for f in dataclasses.fields(family.config)]
    shown = [f"(int)c.{m}" for m in members] + [f"c.{m}()" for m in family.derived]
    table = ",\n".join(config.to_cpp_struct() for config in configs)
    struct = f"flash::{family.config.FAMILY}::{family.config.__name__}"
    lines = lines_of(
        f'#include <cstdio>\n#include "flash/{family.header}"\n'
        f"constexpr {struct} kConfigs[] = {{\n{table}}};\n"
        "int main() { for (const auto& c : kConfigs) "
        f'std::printf("{" ".join(["%d"] * len(shown))}\\n", {", ".join(shown)}); }}\n',
    )
    expected = [
        [
            *(int(getattr(c, m)) for m in members),
            *(getattr(c, method)() for method in family.derived),
        ]
        for c in configs
    ]
    assert [list(map(int, line.split())) for line in lines] == expected


@EVERY_RECORD
def test_argument_offsets_are_the_compiler_s(
    struct: str, header: str, python: ModuleType, size: int
) -> None:
    prints = "".join(
        f'std::printf("{name} %zu %zu\\n", offsetof(flash::{struct}, {name}), '
        f"sizeof(flash::{struct}::{name}));"
        for name in python.FIELDS
    )
    *fields, found = lines_of(
        f'#include <cstddef>\n#include <cstdio>\n#include "flash/{header}"\n'
        f'int main() {{ {prints} std::printf("%zu\\n", sizeof(flash::{struct})); }}\n',
    )
    wide = python.POINTER_FIELDS + python.STRIDE_FIELDS
    for name in ("LENGTH_FIELDS", "LATENT_FIELDS"):
        wide += getattr(python, name, ())
    sizes = [8 if name in wide else 4 for name in python.FIELDS]
    assert [tuple(line.split()) for line in fields] == [
        (name, str(sum(sizes[:i])), str(sizes[i])) for i, name in enumerate(python.FIELDS)
    ]
    assert int(found) == size


ARGUMENTS = {
    "q": 1 << 60, "k": 2, "v": 3, "o": 2**64 - 16, "lse": 0,
    "q_strides": (10, 11, 12), "k_strides": (20, 21, 22), "v_strides": (30, 31, 32),
    "o_strides": (2**40, -8, 42), "batch": 5, "seqlen_q": 6, "seqlen_k": 7, "n_heads_q": 8,
    "n_heads_kv": 9, "softmax_scale": 0.125, "causal": True,
}  # fmt: skip


def test_packed_bytes_read_back_by_name() -> None:
    data = forward_args.pack_forward_args(**ARGUMENTS)  # type: ignore[arg-type]
    fields = forward_args.unpack_forward_args(data)
    for tensor in "qkvo":
        strides = tuple(fields.pop(f"{tensor}_stride_{axis}") for axis in ("batch", "seq", "head"))
        assert strides == ARGUMENTS[f"{tensor}_strides"]
    assert fields.pop("reserved") == 0
    assert fields == {k: v for k, v in ARGUMENTS.items() if not k.endswith("_strides")}
    with pytest.raises(ValueError, match="have 168 bytes, got 167"):
        forward_args.unpack_forward_args(data[:-1])


def test_packing_is_quick() -> None:
    """It is on the path of every launch, whose whole budget is 8 microseconds."""
    once = lambda: forward_args.pack_forward_args(**ARGUMENTS)  # type: ignore[arg-type]  # noqa: E731
    best = min(timeit.repeat(once, number=100, repeat=100)) / 100
    assert best < 4e-6 * slowness()  # measured 0.6e-6; a loaded machine may take longer
