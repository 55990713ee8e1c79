// NVTX calls of the application: its side, which writes what was called into memory of its thread.
//
// A thread owns a chunk of memory that only it appends to; the writer thread reads behind it. The
// one thing that threads share is the list that free chunks come from.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "loss.h"

namespace gapscope {

// Lives as long as the process: events that refer to it may be read at any time.
struct NvtxText {
  std::string text;
  uint32_t name_id = 0;      // the writer thread's
  NvtxText* next = nullptr;  // all of them are kept in a list, or leak checkers would complain
};

constexpr int64_t kNoPayload = -1;

struct NvtxEvent {
  enum class Op : uint8_t { kPush, kPop, kStart, kEnd, kMark };
  int64_t time_ns;
  NvtxText* domain;      // nullptr: the default domain
  NvtxText* registered;  // nullptr: the text follows the event
  uint64_t range;        // of kStart and kEnd
  int64_t payload;       // whole numbers only
  uint32_t text_bytes;
  Op op;
};

class NvtxChunk {
 public:
  static constexpr uint32_t kBytes = 64 << 10;

  // One event at `offset`, its text behind it; returns where the next one starts.
  uint32_t read(uint32_t offset, NvtxEvent* event, const char** text) const;
  bool append(const NvtxEvent& event, const char* text);

  std::atomic<uint32_t> committed{0};
  std::atomic<bool> is_done{false};  // its thread will append no more
  uint32_t consumed = 0;             // the writer thread's
  uint32_t tid = 0;
  alignas(8) char bytes[kBytes];
};

// Registers our functions with the NVTX of one shared object; false when it is too old.
bool subscribe_nvtx(const void* (*get_export_table)(uint32_t), Loss* loss);

// Whether calls are recorded; off, a call costs next to nothing.
void record_nvtx(bool is_on);

// Asks for `on_step(N, time_ns)` when a range begins that is step N by its name: on its thread, before
// the begin is recorded. nullptr, as at first: names are not looked at.
using NvtxStep = void (*)(int64_t number, int64_t time_ns);
void watch_steps(NvtxStep on_step);

// Calls `use(chunk)` for every chunk that may hold unread events, in the order in which a thread
// filled them; recycles chunks that are done and read to the end. Only on the writer thread.
using NvtxUse = void (*)(void* context, NvtxChunk& chunk);
void drain_nvtx(NvtxUse use, void* context);

// In a child after fork: nothing of the parent's is the child's to write.
void forget_nvtx_after_fork();

}  // namespace gapscope
