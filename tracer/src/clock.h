// All times are CLOCK_MONOTONIC: NTP does not step it, and host-side tools use it too.
#pragma once

#include <cstdint>

namespace gapscope {

int64_t monotonic_ns();
int64_t thread_cpu_ns();

// One moment on both clocks; the pair that was read fastest of a few.
struct ClockPair {
  int64_t monotonic_ns;
  int64_t realtime_ns;
  int64_t uncertainty_ns;
};
ClockPair read_clocks();

}  // namespace gapscope
