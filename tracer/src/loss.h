// What did not make it into the streams, counted; written with the metadata, also when all is zero.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace gapscope {

struct Loss {
  // No buffer was free when CUPTI asked for one: its records are dropped by CUPTI.
  std::atomic<uint64_t> buffers_refused{0};
  // The same below CUPTI 12.9, which needs a buffer at any price: content thrown away.
  std::atomic<uint64_t> buffers_discarded{0};
  // Buffers that CUPTI never gave back: another client has replaced our callbacks.
  std::atomic<uint64_t> buffers_taken_over{0};
  // As CUPTI itself counts.
  std::atomic<uint64_t> records_dropped{0};
  // Device ops without times: CUPTI's own device buffer was full.
  std::atomic<uint64_t> ops_without_time{0};
  // NVTX calls for which no memory was free.
  std::atomic<uint64_t> nvtx_dropped{0};
  // Rows of batches that could not be written.
  std::atomic<uint64_t> rows_unwritten{0};
  // Records of kinds that were not asked for.
  std::atomic<uint64_t> unknown_records{0};
  // Ends of ranges whose begin was not seen.
  std::atomic<uint64_t> unmatched_range_ends{0};
};

// The first failed CUPTI calls, as "function: code".
class CuptiErrors {
 public:
  void note(const char* function, int code);
  std::vector<std::string> list() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> list_;
};

}  // namespace gapscope
