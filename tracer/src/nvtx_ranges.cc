#include "nvtx_ranges.h"

namespace gapscope {
namespace {

// Begins that never end must not take memory for ever.
constexpr size_t kMostOpen = 65536;
constexpr size_t kMostDigits = 18;

// Takes `, key = 123` off the end of the text; kNoNumber and the text as it was where it is not.
int64_t take_number(std::string_view* text, std::string_view key) {
  size_t digits = 0;
  int64_t number = 0;
  int64_t scale = 1;
  while (digits < kMostDigits && digits < text->size()) {
    const char c = (*text)[text->size() - 1 - digits];
    if (c < '0' || c > '9') break;
    number += (c - '0') * scale;
    scale *= 10;
    ++digits;
  }
  if (digits == 0 || digits + key.size() >= text->size()) return kNoNumber;
  const std::string_view rest = text->substr(0, text->size() - digits);
  if (rest.substr(rest.size() - key.size()) != key) return kNoNumber;
  *text = rest.substr(0, rest.size() - key.size());
  return number;
}

}  // namespace

SplitLabel split_label(std::string_view text) {
  SplitLabel split{text, kNoNumber, kNoNumber};
  split.op_id = take_number(&split.label, ", op_id = ");
  if (split.op_id != kNoNumber) split.sequence = take_number(&split.label, ", seq = ");
  return split;
}

void NvtxRanges::drain() {
  drain_nvtx([](void* self, NvtxChunk& chunk) { static_cast<NvtxRanges*>(self)->read(chunk); },
             this);
  tables_.flush_full();
}

void NvtxRanges::read(NvtxChunk& chunk) {
  const uint32_t end = chunk.committed.load(std::memory_order_acquire);
  while (chunk.consumed < end) {
    NvtxEvent event;
    const char* text;
    chunk.consumed = chunk.read(chunk.consumed, &event, &text);
    handle(event, std::string_view(text, event.text_bytes), chunk.tid);
  }
}

void NvtxRanges::handle(const NvtxEvent& event, std::string_view text, uint32_t tid) {
  const uint32_t domain = name_of(event.domain);
  const uint64_t key = uint64_t{tid} << 32 | domain;
  switch (event.op) {
    case NvtxEvent::Op::kPush: {
      std::vector<Open>& stack = stacks_[key];
      if (stack.size() < kMostOpen) stack.push_back(open(event, text, tid));
      return;
    }
    case NvtxEvent::Op::kPop: {
      const auto stack = stacks_.find(key);
      if (stack == stacks_.end() || stack->second.empty()) {
        ++loss_.unmatched_range_ends;
        return;
      }
      row(stack->second.back(), RangeKind::kPushPop, event.time_ns);
      stack->second.pop_back();
      return;
    }
    case NvtxEvent::Op::kStart:
      if (started_.size() < kMostOpen) started_[event.range] = open(event, text, tid);
      return;
    case NvtxEvent::Op::kEnd: {
      const auto found = started_.find(event.range);
      if (found == started_.end()) {
        ++loss_.unmatched_range_ends;
        return;
      }
      row(found->second, RangeKind::kStartEnd, event.time_ns);
      started_.erase(found);
      return;
    }
    case NvtxEvent::Op::kMark: {
      Open mark = open(event, text, tid);
      row(mark, RangeKind::kMark, event.time_ns);
      return;
    }
  }
}

NvtxRanges::Open NvtxRanges::open(const NvtxEvent& event, std::string_view text, uint32_t tid) {
  Open range{event.time_ns,       {},        0,        name_of(event.domain),
             tables_.thread(tid), kNoNumber, kNoNumber};
  range.sequence = event.payload;
  if (event.registered != nullptr) {
    range.name = name_of(event.registered);
    return range;
  }
  const SplitLabel split = split_label(text);
  range.op_id = split.op_id;
  if (split.sequence != kNoNumber) range.sequence = split.sequence;
  if (window_.has(event.time_ns, event.time_ns)) {
    range.name = tables_.name(split.label);
  } else {
    range.text = split.label;
  }
  return range;
}

uint32_t NvtxRanges::name_of(NvtxText* text) {
  if (text == nullptr) return 0;
  if (text->name_id == 0) text->name_id = tables_.name(text->text);
  return text->name_id;
}

void NvtxRanges::row(Open& range, RangeKind kind, int64_t end_ns) {
  if (!window_.has(range.start_ns, end_ns == kStillOpen ? INT64_MAX : end_ns)) return;
  if (!range.text.empty()) range.name = tables_.name(range.text);
  tables_.range.append(range.start_ns, end_ns, range.name, range.domain, range.thread,
                       static_cast<uint8_t>(kind), range.op_id, range.sequence);
  if (++rows_ % 1024 == 0) tables_.flush_full();
}

void NvtxRanges::finish() {
  for (auto& [key, stack] : stacks_) {
    for (Open& range : stack) row(range, RangeKind::kPushPop, kStillOpen);
  }
  for (auto& [id, range] : started_) row(range, RangeKind::kStartEnd, kStillOpen);
  stacks_.clear();
  started_.clear();
}

}  // namespace gapscope
