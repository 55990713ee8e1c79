#include "nvtx.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

#include <cstring>
#include <new>
#include <string_view>

#include "nvtx3/nvToolsExt.h"

#include "clock.h"
#include "step_name.h"

namespace gapscope {
namespace {

// 8 MiB: seconds of ranges of a busy eager step.
constexpr uint32_t kChunks = 128;
constexpr uint32_t kLongestText = 4096;

struct State {
  std::atomic<bool> is_on{false};
  std::atomic<NvtxStep> on_step{nullptr};
  std::atomic<NvtxChunk*> chunks{nullptr};  // kChunks of them; memory only where used
  // A chunk is free (0) or taken; its number in `order` is when it was taken.
  std::atomic<uint64_t> taken[kChunks] = {};
  std::atomic<uint64_t> takes{0};
  std::atomic<uint32_t> generation{0};
  std::atomic<uint64_t> range_ids{0};
  std::atomic<NvtxText*> texts{nullptr};
  std::atomic<Loss*> loss{nullptr};
};

State state;

NvtxChunk* chunks() {
  NvtxChunk* memory = state.chunks.load(std::memory_order_acquire);
  if (memory != nullptr) return memory;
  void* mapped = mmap(nullptr, sizeof(NvtxChunk) * kChunks, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* fresh = static_cast<NvtxChunk*>(mapped);
  if (state.chunks.compare_exchange_strong(memory, fresh, std::memory_order_acq_rel)) return fresh;
  munmap(mapped, sizeof(NvtxChunk) * kChunks);
  return memory;
}

NvtxChunk* take_chunk() {
  NvtxChunk* all = chunks();
  if (all == nullptr) return nullptr;
  const uint64_t number = state.takes.fetch_add(1, std::memory_order_relaxed) + 1;
  for (uint32_t i = 0; i < kChunks; ++i) {
    const uint32_t index = static_cast<uint32_t>((number + i) % kChunks);
    uint64_t free = 0;
    if (state.taken[index].load(std::memory_order_relaxed) != 0) continue;
    // Prepared by whoever freed it, so that a reader never sees a half-new chunk.
    if (state.taken[index].compare_exchange_strong(free, number, std::memory_order_acq_rel)) {
      return &all[index];
    }
  }
  return nullptr;
}

struct Thread {
  NvtxChunk* chunk = nullptr;
  uint32_t generation = 0;
  uint32_t tid = 0;
  int depth = 0;

  ~Thread() { leave(); }

  void leave() {
    if (chunk != nullptr && generation == state.generation.load(std::memory_order_relaxed)) {
      chunk->is_done.store(true, std::memory_order_release);
    }
    chunk = nullptr;
  }

  NvtxChunk* enter() {
    leave();
    generation = state.generation.load(std::memory_order_relaxed);
    if (tid == 0) tid = static_cast<uint32_t>(syscall(SYS_gettid));
    chunk = take_chunk();
    if (chunk != nullptr) chunk->tid = tid;
    return chunk;
  }
};

thread_local Thread thread;

bool is_on() { return state.is_on.load(std::memory_order_relaxed); }

void look_for_step(const NvtxEvent& event, const char* text) {
  const NvtxStep on_step = state.on_step.load(std::memory_order_relaxed);
  if (on_step == nullptr) return;
  if (event.op != NvtxEvent::Op::kPush && event.op != NvtxEvent::Op::kStart) return;
  const int64_t number = step_number(event.registered != nullptr
                                         ? std::string_view(event.registered->text)
                                         : std::string_view(text, event.text_bytes));
  if (number != kNoStep) on_step(number, event.time_ns);
}

void put(NvtxEvent::Op op, NvtxText* domain, NvtxText* registered, uint64_t range, const char* text,
         size_t text_bytes, int64_t payload = kNoPayload) {
  NvtxEvent event{monotonic_ns(), domain, registered, range, payload,
                  static_cast<uint32_t>(text_bytes < kLongestText ? text_bytes : kLongestText), op};
  look_for_step(event, text);
  // A step may have been the one that ends recording.
  if (!is_on()) return;
  Thread& here = thread;
  if (here.chunk != nullptr &&
      here.generation == state.generation.load(std::memory_order_relaxed) &&
      here.chunk->append(event, text)) {
    return;
  }
  NvtxChunk* fresh = here.enter();
  if (fresh == nullptr || !fresh->append(event, text)) {
    Loss* loss = state.loss.load(std::memory_order_relaxed);
    if (loss != nullptr) loss->nvtx_dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

std::string narrow(const wchar_t* text) {
  std::string result;
  if (text == nullptr) return result;
  for (; *text != 0; ++text) {
    const auto c = static_cast<uint32_t>(*text);
    if (c < 0x80) {
      result += static_cast<char>(c);
    } else if (c < 0x800) {
      result += static_cast<char>(0xc0 | c >> 6);
      result += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      result += static_cast<char>(0xe0 | c >> 12);
      result += static_cast<char>(0x80 | (c >> 6 & 0x3f));
      result += static_cast<char>(0x80 | (c & 0x3f));
    } else {
      result += static_cast<char>(0xf0 | (c >> 18 & 0x07));
      result += static_cast<char>(0x80 | (c >> 12 & 0x3f));
      result += static_cast<char>(0x80 | (c >> 6 & 0x3f));
      result += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return result;
}

void put_ascii(NvtxEvent::Op op, NvtxText* domain, uint64_t range, const char* text,
               int64_t payload = kNoPayload) {
  put(op, domain, nullptr, range, text, text == nullptr ? 0 : strlen(text), payload);
}

void put_wide(NvtxEvent::Op op, NvtxText* domain, uint64_t range, const wchar_t* text,
              int64_t payload = kNoPayload) {
  const std::string narrowed = narrow(text);
  put(op, domain, nullptr, range, narrowed.data(), narrowed.size(), payload);
}

int64_t payload_of(const nvtxEventAttributes_t& attributes) {
  switch (attributes.payloadType) {
    case NVTX_PAYLOAD_TYPE_INT64:
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      return attributes.payload.llValue;
    case NVTX_PAYLOAD_TYPE_INT32:
      return attributes.payload.iValue;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      return attributes.payload.uiValue;
    default:
      return kNoPayload;
  }
}

void put_attributes(NvtxEvent::Op op, NvtxText* domain, uint64_t range,
                    const nvtxEventAttributes_t* attributes) {
  if (attributes == nullptr) return put(op, domain, nullptr, range, nullptr, 0);
  const int64_t payload = payload_of(*attributes);
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return put_ascii(op, domain, range, attributes->message.ascii, payload);
    case NVTX_MESSAGE_TYPE_UNICODE:
      return put_wide(op, domain, range, attributes->message.unicode, payload);
    case NVTX_MESSAGE_TYPE_REGISTERED:
      return put(op, domain, reinterpret_cast<NvtxText*>(attributes->message.registered), range,
                 nullptr, 0, payload);
    default:
      return put(op, domain, nullptr, range, nullptr, 0, payload);
  }
}

NvtxText* text_of(nvtxDomainHandle_t domain) { return reinterpret_cast<NvtxText*>(domain); }

NvtxText* new_text(std::string text) {
  auto* object = new (std::nothrow) NvtxText;
  if (object == nullptr) return nullptr;
  object->text = std::move(text);
  object->next = state.texts.load(std::memory_order_relaxed);
  while (!state.texts.compare_exchange_weak(object->next, object, std::memory_order_release)) {
  }
  return object;
}

uint64_t new_range() { return state.range_ids.fetch_add(1, std::memory_order_relaxed) + 1; }

// NVTX's functions. Depths count pushes of all domains of a thread together.
using Op = NvtxEvent::Op;

void NVTX_API mark_ex(const nvtxEventAttributes_t* a) {
  if (is_on()) put_attributes(Op::kMark, nullptr, 0, a);
}
void NVTX_API mark_a(const char* text) {
  if (is_on()) put_ascii(Op::kMark, nullptr, 0, text);
}
void NVTX_API mark_w(const wchar_t* text) {
  if (is_on()) put_wide(Op::kMark, nullptr, 0, text);
}
nvtxRangeId_t NVTX_API start_ex(const nvtxEventAttributes_t* a) {
  const uint64_t id = new_range();
  if (is_on()) put_attributes(Op::kStart, nullptr, id, a);
  return id;
}
nvtxRangeId_t NVTX_API start_a(const char* text) {
  const uint64_t id = new_range();
  if (is_on()) put_ascii(Op::kStart, nullptr, id, text);
  return id;
}
nvtxRangeId_t NVTX_API start_w(const wchar_t* text) {
  const uint64_t id = new_range();
  if (is_on()) put_wide(Op::kStart, nullptr, id, text);
  return id;
}
void NVTX_API end(nvtxRangeId_t id) {
  if (is_on()) put(Op::kEnd, nullptr, nullptr, id, nullptr, 0);
}
int NVTX_API push_ex(const nvtxEventAttributes_t* a) {
  if (is_on()) put_attributes(Op::kPush, nullptr, 0, a);
  return thread.depth++;
}
int NVTX_API push_a(const char* text) {
  if (is_on()) put_ascii(Op::kPush, nullptr, 0, text);
  return thread.depth++;
}
int NVTX_API push_w(const wchar_t* text) {
  if (is_on()) put_wide(Op::kPush, nullptr, 0, text);
  return thread.depth++;
}
int NVTX_API pop() {
  if (is_on()) put(Op::kPop, nullptr, nullptr, 0, nullptr, 0);
  return thread.depth > 0 ? --thread.depth : -1;
}
void NVTX_API domain_mark(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) {
  if (is_on()) put_attributes(Op::kMark, text_of(d), 0, a);
}
nvtxRangeId_t NVTX_API domain_start(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) {
  const uint64_t id = new_range();
  if (is_on()) put_attributes(Op::kStart, text_of(d), id, a);
  return id;
}
void NVTX_API domain_end(nvtxDomainHandle_t d, nvtxRangeId_t id) {
  if (is_on()) put(Op::kEnd, text_of(d), nullptr, id, nullptr, 0);
}
int NVTX_API domain_push(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) {
  if (is_on()) put_attributes(Op::kPush, text_of(d), 0, a);
  return thread.depth++;
}
int NVTX_API domain_pop(nvtxDomainHandle_t d) {
  if (is_on()) put(Op::kPop, text_of(d), nullptr, 0, nullptr, 0);
  return thread.depth > 0 ? --thread.depth : -1;
}
nvtxStringHandle_t NVTX_API register_a(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new_text(text == nullptr ? "" : text));
}
nvtxStringHandle_t NVTX_API register_w(nvtxDomainHandle_t, const wchar_t* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new_text(narrow(text)));
}
nvtxDomainHandle_t NVTX_API create_a(const char* text) {
  return reinterpret_cast<nvtxDomainHandle_t>(new_text(text == nullptr ? "" : text));
}
nvtxDomainHandle_t NVTX_API create_w(const wchar_t* text) {
  return reinterpret_cast<nvtxDomainHandle_t>(new_text(narrow(text)));
}

struct Entry {
  unsigned int cbid;
  NvtxFunctionPointer function;
};

template <size_t count>
bool install(const NvtxExportTableCallbacks* tables, NvtxCallbackModule module,
             const Entry (&entries)[count]) {
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!tables->GetModuleFunctionTable(module, &table, &size) || table == nullptr) return false;
  for (const Entry& entry : entries) {
    if (entry.cbid < size && table[entry.cbid] != nullptr) *table[entry.cbid] = entry.function;
  }
  return true;
}

#define GAPSCOPE_ENTRY(cbid, function) {cbid, reinterpret_cast<NvtxFunctionPointer>(function)}

const Entry kCore[] = {
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_MarkEx, mark_ex),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_MarkA, mark_a),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_MarkW, mark_w),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangeStartEx, start_ex),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangeStartA, start_a),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangeStartW, start_w),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangeEnd, end),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangePushEx, push_ex),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangePushA, push_a),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangePushW, push_w),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE_RangePop, pop),
};

const Entry kCore2[] = {
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainMarkEx, domain_mark),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainRangeStartEx, domain_start),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainRangeEnd, domain_end),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainRangePushEx, domain_push),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainRangePop, domain_pop),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainRegisterStringA, register_a),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainRegisterStringW, register_w),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainCreateA, create_a),
    GAPSCOPE_ENTRY(NVTX_CBID_CORE2_DomainCreateW, create_w),
};

#undef GAPSCOPE_ENTRY

constexpr uint32_t padded(uint32_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

bool NvtxChunk::append(const NvtxEvent& event, const char* text) {
  const uint32_t offset = committed.load(std::memory_order_relaxed);
  const uint32_t size = padded(static_cast<uint32_t>(sizeof event) + event.text_bytes);
  if (offset + size > kBytes) return false;
  std::memcpy(bytes + offset, &event, sizeof event);
  if (event.text_bytes > 0) std::memcpy(bytes + offset + sizeof event, text, event.text_bytes);
  committed.store(offset + size, std::memory_order_release);
  return true;
}

uint32_t NvtxChunk::read(uint32_t offset, NvtxEvent* event, const char** text) const {
  std::memcpy(event, bytes + offset, sizeof *event);
  *text = bytes + offset + sizeof *event;
  return offset + padded(static_cast<uint32_t>(sizeof *event) + event->text_bytes);
}

bool subscribe_nvtx(const void* (*get_export_table)(uint32_t), Loss* loss) {
  state.loss = loss;
  const auto* tables =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (tables == nullptr || tables->struct_size < sizeof *tables) return false;
  return install(tables, NVTX_CB_MODULE_CORE, kCore) &&
         install(tables, NVTX_CB_MODULE_CORE2, kCore2);
}

void record_nvtx(bool is_on) { state.is_on = is_on; }

void watch_steps(NvtxStep on_step) { state.on_step = on_step; }

void drain_nvtx(NvtxUse use, void* context) {
  NvtxChunk* all = state.chunks.load(std::memory_order_acquire);
  if (all == nullptr) return;
  // Oldest first: a thread's chunks follow each other in the order in which they were taken.
  struct Taken {
    uint64_t number;
    uint32_t index;
  } order[kChunks];
  uint32_t count = 0;
  for (uint32_t i = 0; i < kChunks; ++i) {
    const uint64_t number = state.taken[i].load(std::memory_order_acquire);
    if (number == 0) continue;
    uint32_t at = count++;
    for (; at > 0 && order[at - 1].number > number; --at) order[at] = order[at - 1];
    order[at] = {number, i};
  }
  for (uint32_t i = 0; i < count; ++i) {
    NvtxChunk& chunk = all[order[i].index];
    // Asked before reading: after it is set nothing is appended, so what is read now is all.
    const bool is_done = chunk.is_done.load(std::memory_order_acquire);
    use(context, chunk);
    if (!is_done) continue;
    chunk.consumed = 0;
    chunk.committed.store(0, std::memory_order_relaxed);
    chunk.is_done.store(false, std::memory_order_relaxed);
    state.taken[order[i].index].store(0, std::memory_order_release);
  }
}

void forget_nvtx_after_fork() {
  state.is_on = false;
  state.generation.fetch_add(1);
  NvtxChunk* all = state.chunks.load();
  if (all == nullptr) return;
  for (uint32_t i = 0; i < kChunks; ++i) {
    if (state.taken[i].load() == 0) continue;
    all[i].committed = 0;
    all[i].is_done = false;
    all[i].consumed = 0;
    state.taken[i] = 0;
  }
}

}  // namespace gapscope
