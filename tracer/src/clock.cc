#include "clock.h"

#include <time.h>

namespace gapscope {
namespace {

int64_t read(clockid_t id) {
  timespec now;
  clock_gettime(id, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t monotonic_ns() { return read(CLOCK_MONOTONIC); }
int64_t thread_cpu_ns() { return read(CLOCK_THREAD_CPUTIME_ID); }

ClockPair read_clocks() {
  ClockPair best{0, 0, INT64_MAX};
  for (int i = 0; i < 5; ++i) {
    const int64_t before = monotonic_ns();
    const int64_t realtime = read(CLOCK_REALTIME);
    const int64_t after = monotonic_ns();
    if (after - before < best.uncertainty_ns) {
      best = {before + (after - before) / 2, realtime, after - before};
    }
  }
  return best;
}

}  // namespace gapscope
