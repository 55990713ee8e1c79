// The streams of one process: which tables there are, and their open batches.
//
// `name`, `call` and `thread` describe ids that rows of the other tables use; they are always
// written before the rows. Everything here belongs to the writer thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "columns.h"
#include "loss.h"
#include "names.h"
#include "sink.h"

namespace gapscope {

// Numbers that stand for "none" in columns that are too narrow for CUPTI's own.
constexpr uint8_t kNoDevice = 0xff;
constexpr uint16_t kNoThread = 0xffff;
constexpr uint16_t kNoChannel = 0xffff;
constexpr int64_t kStillOpen = -1;
constexpr int64_t kNoNumber = -1;

enum class ApiDomain : uint8_t { kRuntime = 0, kDriver = 1 };
enum class RangeKind : uint8_t { kPushPop = 0, kStartEnd = 1, kMark = 2 };

class Tables {
 public:
  Tables(Sink& sink, Loss& loss);

  Columns kernel, memcpy, memset, graph, api, event, sync, range, external, overhead, device,
      context, stream, clock;

  // Id of a string, described in `name`; 0 for none.
  uint32_t name(std::string_view text);
  // Ids of a calling thread, and of a function with what it returned.
  uint16_t thread(uint32_t tid);
  // `name_of()` gives the function's name; asked once per function and return code.
  template <typename NameOf>
  uint16_t call(ApiDomain domain, uint32_t function, uint32_t return_code, NameOf name_of) {
    const uint64_t key =
        uint64_t{return_code} << 32 | static_cast<uint64_t>(domain) << 31 | function;
    const auto found = calls_.find(key);
    if (found != calls_.end()) return found->second;
    return add_call(key, domain, return_code, name_of());
  }

  // Writes every batch that is full, or every batch with rows.
  void flush_full();
  void flush_all();
  uint64_t rows_written() const { return rows_written_; }

 private:
  uint16_t add_call(uint64_t key, ApiDomain domain, uint32_t return_code, std::string_view name);
  // Descriptions of ids first. They are kept for the next try when they cannot be written.
  bool flush_descriptions();
  void flush(Columns& table);

  Sink& sink_;
  Loss& loss_;
  Columns name_, call_, thread_;
  Names names_;
  std::unordered_map<uint64_t, uint16_t> calls_;
  std::unordered_map<uint32_t, uint16_t> threads_;
  uint32_t last_tid_ = 0;
  uint16_t last_thread_ = kNoThread;
  uint64_t rows_written_ = 0;
};

}  // namespace gapscope
