"""The launch arguments of the backward pass by pairs of thread blocks: sections, which Python makes
for the emulator as C++ does for the driver, behind the arguments of the two passes."""

from __future__ import annotations

import itertools
import struct
from dataclasses import astuple, replace
from pathlib import Path

from flash_helpers.kernels.backward_args import BACKWARD_ARGS_SIZE
from flash_helpers.kernels.backward_config import called_sizes
from flash_helpers.kernels.registry import family_of
from flash_helpers.kernels.sm90_bwd.arguments import LAUNCH_ARGUMENTS_SIZE
from tests.config.test_cluster_backward_configs import CONFIG, SECTIONS
from tests.runtime.maps_as_text import lines_of
from tests.runtime.test_hopper_backward_args import problem

CONFIGS = (CONFIG, replace(CONFIG, wave_pairs=4), replace(CONFIG, wave_pairs=0))
MAIN = r"""
#include "flash/sm90_bwd_cluster/args.h"

template <auto kConfig>
void show(const flash::BackwardArgs& args) {
  const flash::sm90_bwd_cluster::HeadSections made =
      flash::sm90_bwd_cluster::sections_of(kConfig, args);
  std::printf("%u %u %u %u %u %u %u; %u %u\n", made.pairs, made.workers, made.heads, made.n_heads,
              made.rows_of_head, made.count, made.lead, made.prepared_before(),
              made.n_heads - made.rounded_behind());
}

int main(int, char** argv) {
  flash::BackwardArgs record;
  std::ifstream file(argv[1], std::ios::binary);
  while (file.read(reinterpret_cast<char*>(&record), sizeof(record))) { SHOW }
  using Record = flash::sm90_bwd_cluster::BackwardKernelArgs;
  static const Record made{};  // its layout has no offsetof
  const auto* behind = reinterpret_cast<const char*>(&made.sections);
  std::printf("%zu %td\n", sizeof(Record), behind - reinterpret_cast<const char*>(&made));
}
"""
RECORDS = [
    problem(batch=batch, seqlen_k=keys, n_heads_q=heads, n_heads_kv=kv_heads, causal=causal)
    for (batch, keys, heads, kv_heads, causal), _ in SECTIONS
]


def test_python_and_cpp_make_the_same(tmp_path: Path) -> None:
    shows = "".join(f"show<{config.to_cpp_struct()}>(record);" for config in CONFIGS)
    *lines, record = lines_of(tmp_path, MAIN.replace("SHOW", shows), (), RECORDS)
    expected = []
    for data, config in itertools.product(RECORDS, CONFIGS):
        made = config.sections(called_sizes(data))
        words = " ".join(map(str, astuple(made)))
        expected.append(f"{words}; {made.prepared_before()} {made.rounded_behind()}")
    assert lines == expected
    assert len(set(lines)) > len(RECORDS)
    assert record == f"{LAUNCH_ARGUMENTS_SIZE + made.SIZE} {LAUNCH_ARGUMENTS_SIZE}"


def test_they_stand_behind_the_two_passes_arguments() -> None:
    data = RECORDS[0]
    made = CONFIG.sections(called_sizes(data))
    for variant in CONFIG.variants():
        found = family_of(CONFIG).launch_arguments(CONFIG, data, variant)
        assert len(found) == LAUNCH_ARGUMENTS_SIZE + made.SIZE
        assert struct.unpack_from("<7I", found, LAUNCH_ARGUMENTS_SIZE) == astuple(made)
        assert found.index(data) + BACKWARD_ARGS_SIZE <= LAUNCH_ARGUMENTS_SIZE
