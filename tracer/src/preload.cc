// What LD_PRELOAD=libgapscope_trace.so does: the library is then loaded into every program, those
// without CUDA too, and must not be felt there. It only names itself where CUDA and NVTX look for a
// library to load, so that a program or child that does use CUDA is traced as by the launcher.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace {

constexpr const char* kInjections[] = {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"};

// Runs in shells and linkers before their main: nothing here may start a process or print.
__attribute__((constructor)) void name_ourselves() {
  const char* directory = getenv("GAPSCOPE_TRACE_DIR");
  const char* preloaded = getenv("LD_PRELOAD");
  if (directory == nullptr || *directory == 0 || preloaded == nullptr) return;
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&name_ourselves), &self) == 0) return;
  const char* slash = strrchr(self.dli_fname, '/');
  // Loaded in another way: whoever did that has said what is to be injected.
  if (strstr(preloaded, slash == nullptr ? self.dli_fname : slash + 1) == nullptr) return;
  for (const char* name : kInjections) {
    const char* taken = getenv(name);
    if (taken != nullptr && *taken != 0) return;
  }
  // bash exports a setenv of its own, which makes shell variables: before its main, libc's is safe.
  void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return;
  const auto set = reinterpret_cast<decltype(&setenv)>(dlsym(libc, "setenv"));
  char* path = realpath(self.dli_fname, nullptr);
  if (set != nullptr && path != nullptr) {
    for (const char* name : kInjections) set(name, path, 1);
  }
  free(path);
  dlclose(libc);
}

}  // namespace
