#include "tables.h"

#include "utf8.h"

namespace gapscope {
namespace {

constexpr Type I64 = Type::kInt64, U64 = Type::kUint64, I32 = Type::kInt32, U32 = Type::kUint32,
               U16 = Type::kUint16, U8 = Type::kUint8, TEXT = Type::kText;

#define GAPSCOPE_TABLE(variable, name, ...)             \
  constexpr ColumnSpec variable##Columns[] = {__VA_ARGS__}; \
  constexpr TableSpec variable = {name, variable##Columns,  \
                                  sizeof variable##Columns / sizeof(ColumnSpec)}

// A kernel is 61 bytes and a call 24: what a launch costs on disk.
GAPSCOPE_TABLE(kKernel, "kernel", {"start_ns", I64}, {"end_ns", I64}, {"name", U32},
               {"correlation", U32}, {"context", U32}, {"stream", U32}, {"graph_node", U64},
               {"graph", U32}, {"grid_x", U32}, {"grid_y", U16}, {"grid_z", U16},
               {"block_x", U16}, {"block_y", U16}, {"block_z", U16}, {"channel", U16},
               {"device", U8});
GAPSCOPE_TABLE(kApi, "api", {"start_ns", I64}, {"end_ns", I64}, {"correlation", U32},
               {"thread", U16}, {"call", U16});
GAPSCOPE_TABLE(kMemcpy, "memcpy", {"start_ns", I64}, {"end_ns", I64}, {"bytes", U64},
               {"correlation", U32}, {"context", U32}, {"stream", U32}, {"graph_node", U64},
               {"graph", U32}, {"channel", U16}, {"device", U8}, {"src_device", U8},
               {"dst_device", U8}, {"copy_kind", U8}, {"src_kind", U8}, {"dst_kind", U8});
GAPSCOPE_TABLE(kMemset, "memset", {"start_ns", I64}, {"end_ns", I64}, {"bytes", U64},
               {"correlation", U32}, {"context", U32}, {"stream", U32}, {"graph_node", U64},
               {"graph", U32}, {"channel", U16}, {"device", U8}, {"memory_kind", U8});
GAPSCOPE_TABLE(kGraph, "graph", {"start_ns", I64}, {"end_ns", I64}, {"correlation", U32},
               {"context", U32}, {"stream", U32}, {"graph", U32}, {"device", U8});
GAPSCOPE_TABLE(kEvent, "event", {"correlation", U32}, {"context", U32}, {"stream", U32},
               {"event", U32}, {"sync_id", U64}, {"device_ns", I64});
GAPSCOPE_TABLE(kSync, "sync", {"start_ns", I64}, {"end_ns", I64}, {"type", U8},
               {"correlation", U32}, {"context", U32}, {"stream", U32}, {"event", U32},
               {"sync_id", U64});
GAPSCOPE_TABLE(kRange, "range", {"start_ns", I64}, {"end_ns", I64}, {"name", U32},
               {"domain", U32}, {"thread", U16}, {"kind", U8}, {"op_id", I64},
               {"sequence", I64});
GAPSCOPE_TABLE(kExternal, "external", {"correlation", U32}, {"kind", U32}, {"external_id", U64});
GAPSCOPE_TABLE(kOverhead, "overhead", {"start_ns", I64}, {"end_ns", I64}, {"kind", U32},
               {"correlation", U32}, {"thread", U16});
GAPSCOPE_TABLE(kDevice, "device", {"device", U32}, {"name", U32}, {"uuid", U32},
               {"multiprocessors", U32}, {"compute_major", U32}, {"compute_minor", U32});
GAPSCOPE_TABLE(kContext, "context", {"context", U32}, {"device", U32}, {"null_stream", U32});
GAPSCOPE_TABLE(kStream, "stream", {"context", U32}, {"stream", U32}, {"priority", I32},
               {"flag", U32});
GAPSCOPE_TABLE(kClock, "clock", {"monotonic_ns", I64}, {"realtime_ns", I64},
               {"uncertainty_ns", I64});
GAPSCOPE_TABLE(kName, "name", {"id", U32}, {"text", TEXT});
GAPSCOPE_TABLE(kCall, "call", {"id", U16}, {"domain", U8}, {"name", U32}, {"return_code", U32});
GAPSCOPE_TABLE(kThread, "thread", {"id", U16}, {"tid", U32});

#undef GAPSCOPE_TABLE

// Ids are 16 bits wide and the last means none.
constexpr size_t kMostIds = 0xffff;

}  // namespace

Tables::Tables(Sink& sink, Loss& loss)
    : kernel(kKernel),
      memcpy(kMemcpy),
      memset(kMemset),
      graph(kGraph),
      api(kApi),
      event(kEvent),
      sync(kSync),
      range(kRange),
      external(kExternal),
      overhead(kOverhead),
      device(kDevice),
      context(kContext),
      stream(kStream),
      clock(kClock),
      sink_(sink),
      loss_(loss),
      name_(kName),
      call_(kCall),
      thread_(kThread) {}

uint32_t Tables::name(std::string_view text) {
  if (name_.full()) flush_descriptions();
  // Still full: the disk refuses. Later rows lose their name rather than take memory.
  if (name_.full()) return 0;
  bool is_new;
  const uint32_t id = names_.id(text, &is_new);
  // Rather a wrong letter than a stream that no reader takes.
  if (is_new) name_.append(id, std::string_view(to_utf8(text)));
  return id;
}

uint16_t Tables::thread(uint32_t tid) {
  if (tid == last_tid_) return last_thread_;
  auto found = threads_.find(tid);
  if (found == threads_.end()) {
    if (threads_.size() >= kMostIds || thread_.full()) return kNoThread;
    found = threads_.emplace(tid, static_cast<uint16_t>(threads_.size())).first;
    thread_.append(found->second, tid);
  }
  last_tid_ = tid;
  last_thread_ = found->second;
  return last_thread_;
}

uint16_t Tables::add_call(uint64_t key, ApiDomain domain, uint32_t return_code,
                          std::string_view text) {
  if (calls_.size() >= kMostIds || call_.full()) return static_cast<uint16_t>(kMostIds);
  const auto id = static_cast<uint16_t>(calls_.size());
  const uint32_t name_id = name(text);
  call_.append(id, static_cast<uint8_t>(domain), name_id, return_code);
  calls_.emplace(key, id);
  return id;
}

bool Tables::flush_descriptions() {
  for (Columns* table : {&name_, &call_, &thread_}) {
    if (table->rows() == 0) continue;
    if (!sink_.write(*table)) return false;
    table->clear();
  }
  return true;
}

void Tables::flush(Columns& table) {
  if (flush_descriptions() && sink_.write(table)) {
    rows_written_ += table.rows();
  } else {
    loss_.rows_unwritten += table.rows();
  }
  table.clear();
}

void Tables::flush_full() {
  for (Columns* table : {&kernel, &memcpy, &memset, &graph, &api, &event, &sync, &range, &external,
                         &overhead, &device, &context, &stream, &clock}) {
    if (table->full()) flush(*table);
  }
}

void Tables::flush_all() {
  for (Columns* table : {&device, &context, &stream, &clock, &kernel, &memcpy, &memset, &graph,
                         &api, &event, &sync, &range, &external, &overhead}) {
    if (table->rows() > 0) flush(*table);
  }
}

}  // namespace gapscope
