// Buffers for a CUPTI that must have one when the pool has none left (before 12.9 it crashes without).
// What it writes into them is thrown away.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace gapscope {

class OverflowBuffers {
 public:
  static constexpr size_t kBytes = 64 << 10;

  uint8_t* make() {
    auto* buffer = static_cast<uint8_t*>(malloc(kBytes));
    for (std::atomic<uint8_t*>& slot : made_) {
      uint8_t* none = nullptr;
      if (slot.compare_exchange_strong(none, buffer)) break;
    }
    return buffer;
  }

  // False for a buffer that was not made here. It is another client's, and not ours to free.
  bool release(uint8_t* buffer) {
    for (std::atomic<uint8_t*>& slot : made_) {
      uint8_t* expected = buffer;
      if (!slot.compare_exchange_strong(expected, nullptr)) continue;
      free(buffer);
      return true;
    }
    return false;
  }

 private:
  // One a thread that launches; those beyond are not freed.
  std::atomic<uint8_t*> made_[256] = {};
};

}  // namespace gapscope
