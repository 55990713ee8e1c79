// To be preloaded: a disk that does not answer for SLOW_DISK_MS, at each of the first three writes
// of the tracer's streams (which alone use writev).
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>

extern "C" __attribute__((visibility("default"))) ssize_t writev(int file, const iovec* parts,
                                                                  int count) {
  static const auto real = reinterpret_cast<decltype(&writev)>(dlsym(RTLD_NEXT, "writev"));
  static int left = 3;
  const char* text = getenv("SLOW_DISK_MS");
  if (text != nullptr && left > 0) {
    --left;
    const long ms = atol(text);
    timespec time{ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, nullptr);
  }
  return real(file, parts, count);
}
