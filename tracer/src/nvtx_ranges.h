// NVTX calls: the writer's side, which pairs begins with ends and makes rows of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loss.h"
#include "nvtx.h"
#include "tables.h"
#include "window.h"

namespace gapscope {

class NvtxRanges {
 public:
  // Rows are what overlaps the window. Begins before it are remembered too: ranges that are open when
  // it opens have their true start.
  NvtxRanges(Tables& tables, Loss& loss, const Window& window)
      : tables_(tables), loss_(loss), window_(window) {}

  // Reads what threads have written since the last time.
  void drain();
  // Rows for the ranges that are still open; nothing may be drained afterwards.
  void finish();

 private:
  struct Open {
    int64_t start_ns;
    std::string text;  // of one that begins before the window: most of them will need no id
    uint32_t name;     // 0: `text` has it, if it has one
    uint32_t domain;
    uint16_t thread;
    int64_t op_id;
    int64_t sequence;
  };

  void read(NvtxChunk& chunk);
  void handle(const NvtxEvent& event, std::string_view text, uint32_t tid);
  Open open(const NvtxEvent& event, std::string_view text, uint32_t tid);
  uint32_t name_of(NvtxText* text);
  void row(Open& range, RangeKind kind, int64_t end_ns);

  Tables& tables_;
  Loss& loss_;
  const Window& window_;
  // Stacks by thread and domain.
  std::unordered_map<uint64_t, std::vector<Open>> stacks_;
  std::unordered_map<uint64_t, Open> started_;
  uint64_t rows_ = 0;
};

// `text` without what PyTorch's emit_nvtx appends to it, and those numbers: they count every op of
// a run, so that each range would have a name of its own. kNoNumber where there is none.
struct SplitLabel {
  std::string_view label;
  int64_t op_id;
  int64_t sequence;
};
SplitLabel split_label(std::string_view text);

}  // namespace gapscope
