// Hostile input for what reads other people's memory: CUPTI records and NVTX calls.
//
// An input is a program: each byte picks a record or a call, the bytes behind it are its fields. What
// CUPTI and NVTX promise is kept (records are whole, pointers are valid or null); everything else is
// as the input has it. With `cmake --preset fuzz` libFuzzer makes the inputs; everywhere else
// fuzz_seeds.cc makes the same few thousand every time.
#include <cupti_activity.h>
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>

#include <set>
#include <string>
#include <vector>

#include "cupti_api.h"
#include "decode.h"
#include "nvtx.h"
#include "nvtx_ranges.h"
#include "sink.h"
#include "step_name.h"
#include "tables.h"
#include "utf8.h"
#include "window.h"

namespace gapscope {
namespace {

// What reads as a table of functions here is filled by subscribe_nvtx.
NvtxFunctionPointer core[NVTX_CBID_CORE_SIZE];
NvtxFunctionPointer core2[NVTX_CBID_CORE2_SIZE];
NvtxFunctionPointer* core_slots[NVTX_CBID_CORE_SIZE + 1];
NvtxFunctionPointer* core2_slots[NVTX_CBID_CORE2_SIZE + 1];

int NVTX_API function_table(NvtxCallbackModule module, NvtxFunctionTable* table,
                            unsigned int* size) {
  for (int i = 0; i < NVTX_CBID_CORE_SIZE; ++i) core_slots[i] = &core[i];
  for (int i = 0; i < NVTX_CBID_CORE2_SIZE; ++i) core2_slots[i] = &core2[i];
  *table = module == NVTX_CB_MODULE_CORE ? core_slots : core2_slots;
  *size = module == NVTX_CB_MODULE_CORE ? int{NVTX_CBID_CORE_SIZE} : int{NVTX_CBID_CORE2_SIZE};
  return 1;
}

const void* export_table(uint32_t) {
  static NvtxExportTableCallbacks tables{sizeof tables, function_table};
  return &tables;
}

template <typename Function>
Function call(NvtxFunctionPointer function) {
  return reinterpret_cast<Function>(function);
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool is_empty() const { return size_ == 0; }
  uint8_t byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  int64_t number() {
    int64_t value = 0;
    fill(&value, sizeof value);
    return value;
  }
  // Zeros where the input ends.
  void fill(void* to, size_t bytes) {
    memset(to, 0, bytes);
    const size_t have = bytes < size_ ? bytes : size_;
    memcpy(to, data_, have);
    data_ += have;
    size_ -= have;
  }
  std::string text() {
    std::string result(byte(), 0);
    fill(result.data(), result.size());
    return result;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Names as a library may give them.
const char* name_of(uint8_t pick) {
  static const std::string long_name = "_Z" + std::string(70000, 'x');
  static const char* const names[] = {
      nullptr, "", "_Z5scaleIfEvPT_", "_Z", "_Z999999999999x", "l\xe9ger", "a\nb\"c", "kernel",
      long_name.c_str()};
  return names[pick % (sizeof names / sizeof *names)];
}

struct Kind {
  uint32_t kind;
  size_t bytes;  // of the newest version; older ones are smaller
};
const Kind kKinds[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(CUpti_ActivityKernel10)},
    {CUPTI_ACTIVITY_KIND_KERNEL, sizeof(CUpti_ActivityKernel10)},
    {CUPTI_ACTIVITY_KIND_RUNTIME, sizeof(CUpti_ActivityAPI)},
    {CUPTI_ACTIVITY_KIND_DRIVER, sizeof(CUpti_ActivityAPI)},
    {CUPTI_ACTIVITY_KIND_MEMCPY, sizeof(CUpti_ActivityMemcpy6)},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof(CUpti_ActivityMemcpyPtoP4)},
    {CUPTI_ACTIVITY_KIND_MEMSET, sizeof(CUpti_ActivityMemset4)},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, sizeof(CUpti_ActivityGraphTrace2)},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, sizeof(CUpti_ActivityCudaEvent2)},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sizeof(CUpti_ActivitySynchronization2)},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, sizeof(CUpti_ActivityOverhead3)},
    {CUPTI_ACTIVITY_KIND_DEVICE, sizeof(CUpti_ActivityDevice5)},
    {CUPTI_ACTIVITY_KIND_CONTEXT, sizeof(CUpti_ActivityContext3)},
    {CUPTI_ACTIVITY_KIND_STREAM, sizeof(CUpti_ActivityStream)},
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, sizeof(CUpti_ActivityExternalCorrelation)},
    {CUPTI_ACTIVITY_KIND_FORCE_INT, sizeof(CUpti_Activity)},
    {999, sizeof(CUpti_Activity)},
};
const uint32_t kVersions[] = {18, 22, 24, 26, 28, 130001, 130500};
uint32_t version = 0;

size_t stride(uint32_t kind) {
  size_t bytes = sizeof(CUpti_Activity);
  for (const Kind& one : kKinds) {
    if (one.kind == kind) bytes = one.bytes;
  }
  // As small as the version's records are: what the decoder reads behind them, checkers notice.
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && version < 130000) bytes = 208;
  if (kind == CUPTI_ACTIVITY_KIND_KERNEL && version < 130000) bytes = 208;
  if (kind == CUPTI_ACTIVITY_KIND_MEMCPY && version < 26) bytes = 88;
  if (kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION && version < 26) bytes = 40;
  if (kind == CUPTI_ACTIVITY_KIND_CUDA_EVENT && version < 26) bytes = 24;
  if (kind == CUPTI_ACTIVITY_KIND_OVERHEAD && version < 22) bytes = 40;
  if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && version < 22) bytes = 48;
  if (kind == CUPTI_ACTIVITY_KIND_CONTEXT && version < 24) bytes = version < 22 ? 16 : 24;
  return (bytes + 7) / 8 * 8;
}

CUptiResult next_record(uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  uint8_t* at = *record == nullptr ? buffer
                                   : reinterpret_cast<uint8_t*>(*record) + stride((*record)->kind);
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

CUptiResult callback_name(CUpti_CallbackDomain, uint32_t cbid, const char** name) {
  if (cbid % 5 == 1) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = name_of(static_cast<uint8_t>(cbid));
  return CUPTI_SUCCESS;
}

template <typename T>
void set(std::vector<uint8_t>* record, T value, size_t offset) {
  memcpy(record->data() + offset, &value, sizeof value);
}

std::vector<uint8_t> make_record(Input* input) {
  const uint8_t pick = input->byte();
  const Kind& kind = kKinds[pick % (sizeof kKinds / sizeof *kKinds)];
  std::vector<uint8_t> record(stride(kind.kind));
  input->fill(record.data(), record.size());
  const uint8_t name = record.back();
  set(&record, kind.kind, 0);
  switch (kind.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL:
      set(&record, name_of(name), offsetof(CUpti_ActivityKernel10, name));
      break;
    case CUPTI_ACTIVITY_KIND_DEVICE:
      set(&record, name_of(name), offsetof(CUpti_ActivityDevice5, name));
      break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      if (version >= 22) {
        set(&record, name % 2 == 0 ? nullptr : malloc(8),
            offsetof(CUpti_ActivityOverhead3, overheadData));
      }
      break;
    default:
      break;
  }
  return record;
}

void nvtx_call(Input* input) {
  const uint8_t pick = input->byte();
  const std::string text = input->text();
  std::wstring wide;
  for (size_t i = 0; i + 4 <= text.size(); i += 4) {
    wchar_t c;
    memcpy(&c, text.data() + i, sizeof c);
    wide += c;
  }
  nvtxEventAttributes_t attributes{};
  attributes.messageType = static_cast<int32_t>(pick >> 5);
  switch (attributes.messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      attributes.message.ascii = pick & 16 ? text.c_str() : nullptr;
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      attributes.message.unicode = pick & 16 ? wide.c_str() : nullptr;
      break;
    case NVTX_MESSAGE_TYPE_REGISTERED:
      attributes.message.registered =
          pick & 16 ? call<nvtxDomainRegisterStringA_impl_fntype>(
                          core2[NVTX_CBID_CORE2_DomainRegisterStringA])(nullptr, text.c_str())
                    : nullptr;
      break;
    default:
      break;
  }
  const auto* given = pick == 255 ? nullptr : &attributes;
  nvtxDomainHandle_t domain = nullptr;
  if (pick % 3 == 0) {
    domain = call<nvtxDomainCreateA_impl_fntype>(core2[NVTX_CBID_CORE2_DomainCreateA])("domain");
  }
  switch (pick % 12) {
    case 0:
      call<nvtxMarkA_impl_fntype>(core[NVTX_CBID_CORE_MarkA])(text.c_str());
      break;
    case 1:
      call<nvtxMarkW_impl_fntype>(core[NVTX_CBID_CORE_MarkW])(wide.c_str());
      break;
    case 2:
      call<nvtxRangePushA_impl_fntype>(core[NVTX_CBID_CORE_RangePushA])(text.c_str());
      break;
    case 3:
      call<nvtxRangePushEx_impl_fntype>(core[NVTX_CBID_CORE_RangePushEx])(given);
      break;
    case 4:
      call<nvtxRangePop_impl_fntype>(core[NVTX_CBID_CORE_RangePop])();
      break;
    case 5:
      call<nvtxRangeStartEx_impl_fntype>(core[NVTX_CBID_CORE_RangeStartEx])(given);
      break;
    case 6:
      call<nvtxRangeEnd_impl_fntype>(core[NVTX_CBID_CORE_RangeEnd])(text.size());
      break;
    case 7:
      call<nvtxDomainRangePushEx_impl_fntype>(core2[NVTX_CBID_CORE2_DomainRangePushEx])(domain,
                                                                                        given);
      break;
    case 8:
      call<nvtxDomainRangePop_impl_fntype>(core2[NVTX_CBID_CORE2_DomainRangePop])(domain);
      break;
    case 9:
      call<nvtxDomainRangeStartEx_impl_fntype>(core2[NVTX_CBID_CORE2_DomainRangeStartEx])(domain,
                                                                                          given);
      break;
    case 10:
      call<nvtxDomainMarkEx_impl_fntype>(core2[NVTX_CBID_CORE2_DomainMarkEx])(domain, given);
      break;
    default:
      call<nvtxMarkA_impl_fntype>(core[NVTX_CBID_CORE_MarkA])(nullptr);
  }
}

void require(bool condition) {
  if (!condition) abort();
}

// Column of each table that holds ids of `name`.
const std::vector<std::pair<const char*, size_t>> kNamed = {
    {"kernel", 2}, {"range", 2}, {"range", 3}, {"device", 1}, {"device", 2}, {"call", 2}};

void check(MemorySink* sink) {
  std::set<std::string> ids{"0"};
  for (const auto& row : sink->rows("name")) {
    require(ids.insert(row[0]).second);
    require(is_utf8(row[1]));
  }
  for (const auto& [table, column] : kNamed) {
    for (const auto& row : sink->rows(table)) require(ids.count(row[column]) == 1);
  }
}

}  // namespace

void fuzz(const uint8_t* data, size_t size) {
  Input input(data, size);
  version = kVersions[input.byte() % (sizeof kVersions / sizeof *kVersions)];
  CuptiApi cupti;
  cupti.version = version;
  cupti.cuptiActivityGetNextRecord = next_record;
  cupti.cuptiGetCallbackName = callback_name;
  MemorySink sink;
  Loss loss;
  Tables tables(sink, loss);
  Decoder decoder(cupti, tables, loss, 1);
  Window window;
  NvtxRanges ranges(tables, loss, window);
  forget_nvtx_after_fork();
  require(subscribe_nvtx(export_table, &loss));
  record_nvtx(true);
  std::vector<uint8_t> records;
  uint64_t count = 0;
  while (!input.is_empty()) {
    switch (input.byte() % 8) {
      case 0:
        window.open(input.number());
        break;
      case 1:
        window.close(input.number());
        break;
      case 2:
        ranges.drain();
        break;
      case 3: {
        const std::string text = input.text();
        const SplitLabel split = split_label(text);
        require(text.compare(0, split.label.size(), split.label) == 0);
        require(split.op_id >= kNoNumber && split.sequence >= kNoNumber);
        require(step_number(text) >= kNoStep);
        require(is_utf8(to_utf8(text)) && (!is_utf8(text) || to_utf8(text) == text));
        break;
      }
      case 4:
      case 5: {
        const std::vector<uint8_t> record = make_record(&input);
        records.insert(records.end(), record.begin(), record.end());
        ++count;
        break;
      }
      default:
        nvtx_call(&input);
    }
  }
  // Memory of exactly that size: reading behind it is noticed.
  auto* buffer = static_cast<uint8_t*>(malloc(records.size()));
  if (!records.empty()) memcpy(buffer, records.data(), records.size());
  decoder.decode(buffer, records.size());
  free(buffer);
  require(decoder.records() == count);
  ranges.drain();
  ranges.finish();
  record_nvtx(false);
  tables.flush_all();
  require(loss.rows_unwritten == 0 && loss.nvtx_dropped == 0);
  check(&sink);
}

}  // namespace gapscope

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gapscope::fuzz(data, size);
  return 0;
}
