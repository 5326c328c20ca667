// Runs the kernels of known.h. Exit codes: 0 ok, 1 a result is wrong, 3 a CUDA call failed.
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

}  // namespace

int main() {
  int sms = 0;
  KNOWN_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  bool all_right = true;
  for (const Case& one : kCases) {
    const bool right = one.run(sms);
    std::printf("%s: %s\n", one.name, right ? "right" : "WRONG");
    all_right = all_right && right;
  }
  return all_right ? 0 : 1;
}
