// Counts the SIGUSR2 that a process gets, for a window that signals open and close.
#pragma once

#include <cstdint>

namespace gapscope {

// From here on each signal is counted, wakes the reader of `wake_fd` (an eventfd), and then goes to
// the handler that was there before.
void watch_signal(int wake_fd);
uint32_t signals_seen();
// In a child after fork: the signal means again what it meant before.
void unwatch_signal();

}  // namespace gapscope
