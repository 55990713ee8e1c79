// When a process records: opened once, closed once. The session acts on it; this only knows.
#pragma once

#include <atomic>
#include <cstdint>

namespace gapscope {

class Window {
 public:
  // Whether this call opened it. Opening and closing is for one thread at a time.
  bool open(int64_t at_ns) {
    if (was_opened() || is_closed()) return false;
    open_ns_ = at_ns;
    return true;
  }
  // Whether this call closed it. One that is closed before it opens stays closed.
  bool close(int64_t at_ns) {
    if (is_closed()) return false;
    close_ns_ = at_ns;
    return true;
  }

  bool was_opened() const { return open_ns_ != kNever; }
  bool is_closed() const { return close_ns_ != kNever; }
  bool is_open() const { return was_opened() && !is_closed(); }
  // Whether any of the time from `start_ns` to `end_ns` is in it.
  bool has(int64_t start_ns, int64_t end_ns) const {
    return was_opened() && end_ns >= open_ns_ && start_ns <= close_ns_;
  }

  // In a child after fork: its own window is still to come.
  void forget() {
    open_ns_ = kNever;
    close_ns_ = kNever;
  }

 private:
  static constexpr int64_t kNever = INT64_MAX;

  std::atomic<int64_t> open_ns_{kNever};
  std::atomic<int64_t> close_ns_{kNever};
};

}  // namespace gapscope
