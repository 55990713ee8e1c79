// CUPTI activity records -> rows.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "cupti_api.h"
#include "loss.h"
#include "tables.h"

namespace gapscope {

class Decoder {
 public:
  // Calls of `own_tid`, the thread that flushes, are none of the application's.
  Decoder(const CuptiApi& cupti, Tables& tables, Loss& loss, uint32_t own_tid)
      : cupti_(cupti), tables_(tables), loss_(loss), own_tid_(own_tid) {}

  // All records of a buffer. Batches that fill up are written on the way.
  void decode(uint8_t* buffer, size_t valid);
  uint64_t records() const { return records_; }

 private:
  void row(const CUpti_Activity* record);
  void kernel(const CUpti_ActivityKernel10& record);
  void copy(const CUpti_ActivityMemcpy6& record);
  void peer_copy(const CUpti_ActivityMemcpyPtoP4& record);
  void set(const CUpti_ActivityMemset4& record);
  void graph(const CUpti_ActivityGraphTrace2& record);
  void api(const CUpti_ActivityAPI& record, ApiDomain domain);
  void event(const CUpti_ActivityCudaEvent2& record);
  void sync(const CUpti_ActivitySynchronization2& record);
  void overhead(const CUpti_ActivityOverhead3& record);
  void device(const CUpti_ActivityDevice5& record);
  bool has_time(uint64_t start, uint64_t end);
  uint32_t kernel_name(const char* name);

  struct KnownName {
    uint32_t id;
    std::string text;
  };

  const CuptiApi& cupti_;
  Tables& tables_;
  Loss& loss_;
  uint32_t own_tid_;
  uint64_t records_ = 0;
  // CUPTI gives the same pointer for the same kernel; the text is compared because a module may be
  // unloaded and its address used again.
  std::unordered_map<const char*, KnownName> names_;
};

}  // namespace gapscope
