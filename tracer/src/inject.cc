// The two functions that leave the library: CUDA and NVTX call them by name. Nothing that goes
// wrong in here may reach the application.
#include <cstdint>

#include "session.h"

#define GAPSCOPE_EXPORT extern "C" __attribute__((visibility("default")))

// Called by libcuda in cuInit, when CUDA_INJECTION64_PATH names this library.
GAPSCOPE_EXPORT int InitializeInjection() {
  try {
    gapscope::Session::get().start();
  } catch (...) {
    // Out of memory or threads: the application runs untraced.
  }
  return 1;
}

// Called at the first NVTX call of each shared object, when NVTX_INJECTION64_PATH names this
// library.
GAPSCOPE_EXPORT int InitializeInjectionNvtx2(const void* (*get_export_table)(uint32_t)) {
  try {
    return gapscope::Session::get().start_nvtx(get_export_table) ? 1 : 0;
  } catch (...) {
    return 0;
  }
}
