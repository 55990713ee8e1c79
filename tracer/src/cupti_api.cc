#include "cupti_api.h"

#include <dlfcn.h>

namespace gapscope {
namespace {

void* open_library(const std::string& fallback) {
  // Two libcupti in one process are two clients of the driver: take the one that is there.
  for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  }
  if (!fallback.empty()) return dlopen(fallback.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* name :
       {"libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
        "/usr/local/cuda/lib64/libcupti.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

bool CuptiApi::load(const std::string& fallback) {
  void* library = open_library(fallback);
  if (library == nullptr) return false;
#define GAPSCOPE_LOOK_UP(name) name = reinterpret_cast<decltype(name)>(dlsym(library, #name));
  GAPSCOPE_FUNCTIONS(GAPSCOPE_LOOK_UP)
#undef GAPSCOPE_LOOK_UP
  Dl_info found;
  if (cuptiGetVersion != nullptr && dladdr(reinterpret_cast<void*>(cuptiGetVersion), &found) != 0 &&
      found.dli_fname != nullptr) {
    path = found.dli_fname;
  }
  if (cuptiGetVersion == nullptr || cuptiSubscribe == nullptr || cuptiActivityEnable == nullptr ||
      cuptiActivityRegisterCallbacks == nullptr || cuptiActivityGetNextRecord == nullptr ||
      cuptiActivityFlushAll == nullptr || cuptiGetCallbackName == nullptr) {
    return false;
  }
  return cuptiGetVersion(&version) == CUPTI_SUCCESS;
}

}  // namespace gapscope
