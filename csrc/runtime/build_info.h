// What this library was built from. The values are generated (build_info.cpp in the build
// directory).
#pragma once

namespace flash::build_info {

extern const char* const kKernelSet;      // KERNELS of the build: "all", "tune", …
extern const char* const kArchitectures;  // comma-separated: "sm_80,sm_90a"
extern const char* const kFingerprint;    // of sources, configurations, compilers and flags

}  // namespace flash::build_info
