"""A third family of kernels, in this file alone: its configuration, its rules, its CUDA and its
launches. It is enumerated, generated, built, emulated, benched and reported like the others."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.build import driver
from flash_helpers.build.plan import make_plan
from flash_helpers.codegen import generate, load_manifest
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.family import Capability, Family, Sets
from flash_helpers.kernels.names import parse_kernel_name_into_config, parse_symbol
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import FAMILIES, families, family_of, registered, violations
from flash_helpers.kernels.sets import get_kernel_configs
from flash_lab.bench import pt_cli, report_cli
from tests.bench.emulator_backend import EmulatorBackend
from tests.build.remembering import Toolchain

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, order=True)
class ToyKernelConfig(KernelConfig):
    """A thread a row: no tiles, no tensor cores."""

    FAMILY: ClassVar[str] = "toy"
    ARGUMENTS: ClassVar[str] = "flash::toy::ForwardKernelArgs"
    PTX_ARCHITECTURE: ClassVar[str] = "compute_80"

    dtype: DType
    d_head: int
    rows: int

    def short_form(self) -> str:
        return f"({self.dtype.name}, {self.d_head}, {self.rows}): toy"

    def kernel_name(self) -> str:
        return f"flash_fwd_toy_{self.dtype.name.lower()}_d{self.d_head}_r{self.rows}"

    def symbol(self, variant: Variant) -> str:
        return self.kernel_name()

    def variants(self) -> tuple[Variant, ...]:
        return (Variant.ANY,)

    def variant_for(self, *_: object) -> Variant:
        return Variant.ANY

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return 4 * n_samples * n_heads * seq_len**2 * self.d_head

    def n_threads(self) -> int:
        return self.rows

    def smem_bytes(self) -> int:
        return 0

    def blocks(self) -> tuple[int, int]:
        return self.rows, 1


SET = [ToyKernelConfig(dtype, d_head, 32) for dtype in DType for d_head in (16, 64)]
_SHORT = re.compile(r"\((FP16|BF16), (\d+), (\d+)\): toy")
_SYMBOL = re.compile(r"flash_fwd_toy_(fp16|bf16)_d(\d+)_r(\d+)")


class Toy(Family):
    NAME, TITLE = "toy", "toy"
    SPELLINGS = "'(FP16, 64, 32): toy'"
    HEAD_DIMENSIONS = (16, 64)

    def parse(self, text: str) -> ToyKernelConfig | None:
        if match := _SHORT.fullmatch(text) or _SYMBOL.fullmatch(text):
            return ToyKernelConfig(DType.from_string(match[1]), int(match[2]), int(match[3]))
        return None

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        config = self.parse(text) if _SYMBOL.fullmatch(text) else None
        return (config, Variant.ANY) if config else None

    def sets(self) -> Sets:
        return {"toys": self.everything}

    def everything(self) -> Sequence[KernelConfig]:
        return SET

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return [] if config.d_head in self.HEAD_DIMENSIONS else ["d_head must be 16 or 64."]

    def preference(self, capability: Capability | None) -> int:
        return 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        return None if problem.d_head in self.HEAD_DIMENSIONS else "d_head is not 16 or 64"

    def candidates(self) -> Sequence[KernelConfig]:
        return SET

    def how_to_build(self) -> str:
        return "KERNELS=toys"


FILES = {
    "include/flash/toy/args.h": """#pragma once
#include "flash/core/args.h"
namespace flash::toy { using ForwardKernelArgs = ForwardArgs; }
""",
    "include/flash/toy/config.h": """#pragma once
#include "flash/core/dtype.h"
namespace flash::toy {
struct ToyKernelConfig {
  DType dtype;
  int d_head;
  int rows;
  constexpr bool operator==(const ToyKernelConfig&) const = default;
  constexpr int n_threads() const { return rows; }
  constexpr int smem_bytes() const { return 0; }
  constexpr int min_blocks_per_sm() const { return 1; }
};
}  // namespace flash::toy
""",
    "include/flash/toy/forward/forward.cuh": """#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>
#include "flash/toy/args.h"
#include "flash/toy/config.h"
namespace flash::toy {
template <ToyKernelConfig kConfig>
__device__ void forward(const ForwardKernelArgs& args) {
  using T = std::conditional_t<kConfig.dtype == DType::kFP16, __half, __nv_bfloat16>;
  const int n_blocks = (args.seqlen_q + kConfig.rows - 1) / kConfig.rows;
  const int head = static_cast<int>(blockIdx.x) / n_blocks % args.n_heads_q;
  const int batch = static_cast<int>(blockIdx.x) / n_blocks / args.n_heads_q;
  const int row = static_cast<int>(blockIdx.x) % n_blocks * kConfig.rows + threadIdx.x;
  if (row >= args.seqlen_q) return;
  const int kv_head = head / (args.n_heads_q / args.n_heads_kv);
  const T* q = static_cast<const T*>(args.q) + batch * args.q_stride_batch +
               row * args.q_stride_seq + head * args.q_stride_head;
  const int last = args.causal ? row + args.seqlen_k - args.seqlen_q + 1 : args.seqlen_k;
  float max = -INFINITY, sum = 0, o[kConfig.d_head] = {};
  for (int key = 0; key < min(last, args.seqlen_k); ++key) {
    const T* k = static_cast<const T*>(args.k) + batch * args.k_stride_batch +
                 key * args.k_stride_seq + kv_head * args.k_stride_head;
    const T* v = static_cast<const T*>(args.v) + batch * args.v_stride_batch +
                 key * args.v_stride_seq + kv_head * args.v_stride_head;
    float s = 0;
    for (int i = 0; i < kConfig.d_head; ++i) s += float(q[i]) * float(k[i]);
    s *= args.softmax_scale * 1.4426950408889634f;
    const float next = fmaxf(max, s);
    const float keep = exp2f(max - next), p = exp2f(s - next);
    sum = sum * keep + p;
    for (int i = 0; i < kConfig.d_head; ++i) o[i] = o[i] * keep + p * float(v[i]);
    max = next;
  }
  T* out = static_cast<T*>(args.o) + batch * args.o_stride_batch + row * args.o_stride_seq +
           head * args.o_stride_head;
  for (int i = 0; i < kConfig.d_head; ++i) out[i] = T(sum > 0 ? o[i] / sum : 0.f);
  if (args.lse != nullptr) {
    args.lse[(int64_t{batch} * args.n_heads_q + head) * args.seqlen_q + row] =
        sum > 0 ? (max + log2f(sum)) * 0.6931471805599453f : -INFINITY;
  }
}
}  // namespace flash::toy
""",
    "runtime/toy.cpp": """#include "family.h"
#include "flash/toy/config.h"
#include "forward_checks.h"
namespace flash::toy {
extern const Family kFamily;
const Family kFamily = {
    .check = [](const KernelEntry&, const ForwardArgs&) {},
    .variant_for = [](const KernelEntry&, const ForwardArgs&) { return Variant::kAny; },
    .what_it_takes = [](const KernelEntry&) { return std::string(" takes everything"); },
    .n_tiles = [](const KernelEntry& entry, const ForwardArgs& args) {
      return forward_tiles(entry, args, config_of<ToyKernelConfig>(entry).rows);
    },
    .prepare = [](int) {},
    .queue = [](const Launch& launch, const ForwardArgs& args) {
      return queue_blocks(launch, launch.n_tiles, &args);
    }};
}  // namespace flash::toy
""",
}


def toy_in(folder: Path) -> Toy:
    """The family, its C++ written below a folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    placed: Toy = type("Placed", (Toy,), {"SOURCES": folder})()
    return placed


class ToyBackend(EmulatorBackend):
    """What a worker process of pt_bench loads: it knows the family too."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.family = registered(toy_in(Path(self.folder.name)))
        self.family.__enter__()

    def prepare(self, shape: dict[str, Any]) -> None:
        super().prepare(shape)  # one head of it: the emulator takes its time
        q, k, v = (x[:1, :, :1].clone() for x in self.inputs)
        self.inputs = q, k, v


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Toy]:
    family = toy_in(tmp_path / "toy")
    with registered(family):
        yield family
    assert families() == FAMILIES


def test_it_is_enumerated_and_named(toy: Toy) -> None:
    assert get_kernel_configs("toys") == SET
    assert set(SET) <= set(get_kernel_configs("all"))
    for config in SET:
        assert parse_kernel_name_into_config(config.short_form()) == config
        assert parse_symbol(config.kernel_name()) == (config, Variant.ANY)
        assert family_of(config) is toy and violations(config) == []
    with pytest.raises(ValueError, match=r"or, of the toy family, '.FP16, 64, 32.: toy'"):
        parse_kernel_name_into_config("(FP16, 64, 33): toy!")


def test_it_is_generated(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="d_head must be 16 or 64"):
        generate(tmp_path, [replace(SET[0], d_head=24)])
    generate(tmp_path / "generated", [*SET, *get_kernel_configs("prog")])
    manifest = load_manifest(tmp_path / "generated")
    assert {kernel.config for kernel in manifest.kernels} >= set(SET)
    assert manifest.units("toy") == ["flash_fwd_toy_unit_000.cu"]


@pytest.mark.parametrize("config", SET, ids=str)
def test_it_is_emulated(toy: Toy, config: ToyKernelConfig, needs_compilers: None) -> None:
    import torch

    import flash_attention
    from flash_attention.dispatch import choose_from
    from flash_helpers.check.reference import attention_reference
    from flash_helpers.check.tolerance import compare

    dtype = config.dtype.to_torch_dtype()
    q = torch.randn(2, 37, 4, config.d_head, dtype=dtype)
    k, v = (torch.randn(2, 70, 2, config.d_head, dtype=dtype) for _ in range(2))
    for causal in (False, True):
        o = flash_attention.forward(config, q, k, v, causal=causal)
        outcome = compare(o, attention_reference(q, k, v, causal=causal)[0])
        assert outcome.passed, outcome.describe()
        problem = AttentionProblem(config.dtype, 2, 37, 70, 4, 2, config.d_head, causal=causal)
        assert choose_from(toy, problem, q.device) == config


def test_it_is_built(toy: Toy, tmp_path: Path, compilers: Toolchain) -> None:
    for name in ("csrc", "previous_kernels"):
        shutil.copytree(ROOT / name, tmp_path / "tree" / name)
    shutil.copy2(ROOT / "CMakeLists.txt", tmp_path / "tree")
    toys = {"KERNELS": "toys", "TORCH_CUDA_ARCH_LIST": "8.0", **compilers.environ()}
    plan = replace(make_plan({**os.environ, **toys}), root=tmp_path / "tree")
    (module,) = driver.build_plan(plan, publish_to=[tmp_path / "package"]).published
    text = module.read_bytes()
    assert all(config.kernel_name().encode() in text for config in SET)


def test_it_is_benched_and_reported(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_compilers: None,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'py'}:{ROOT}")
    out = tmp_path / "rows.jsonl"
    status = pt_cli.main(
        ["--kernels", "toys", "--dtypes", "fp16", "--d_heads", "16", "--seq_lens", "64",
         "--num_repeats", "4", "--num_warmups", "0", "--target_noise", "0", "--providers", "ours",
         "--no_ceilings", "--out", str(out)],
        "tests.build.test_third_family:ToyBackend",
    )  # fmt: skip
    assert status == 0, capsys.readouterr()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["kernel"] for r in rows if r["status"] == "ok"] == ["(FP16, 16, 32): toy"]
    assert "(FP16, 16, 32): toy" in capsys.readouterr().out
    assert report_cli.main([str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert "(FP16, 16, 32): toy" in (tmp_path / "report.html").read_text()
