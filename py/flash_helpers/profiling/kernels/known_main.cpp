// Runs the kernels of known.h: all, or those that are named. Exit codes: 0 ok, 1 a result is wrong,
// 2 usage, 3 a CUDA call failed.
#include <cstring>

#include "known.h"

namespace {

struct Case {
  const char* name;
  bool (*run)(int sms);
};

constexpr Case kCases[] = {
    {"memory-bound", known::run_memory_bound}, {"bank-conflicts", known::run_bank_conflicts},
    {"spilling", known::run_spilling},         {"low-occupancy", known::run_low_occupancy},
    {"tensor-bound", known::run_tensor_bound},
};

bool is_wanted(const char* name, int argc, char** argv) {
  if (argc < 2) return true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    bool is_known = false;
    for (const Case& one : kCases) is_known = is_known || std::strcmp(argv[i], one.name) == 0;
    if (!is_known) {
      std::fprintf(stderr, "no kernel %s; there are:", argv[i]);
      for (const Case& one : kCases) std::fprintf(stderr, " %s", one.name);
      std::fprintf(stderr, "\n");
      return 2;
    }
  }
  int sms = 0;
  KNOWN_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  bool all_right = true;
  for (const Case& one : kCases) {
    if (!is_wanted(one.name, argc, argv)) continue;
    const bool right = one.run(sms);
    std::printf("%s: %s\n", one.name, right ? "right" : "WRONG");
    all_right = all_right && right;
  }
  return all_right ? 0 : 1;
}
