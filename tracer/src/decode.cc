#include "decode.h"

#include <cxxabi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace gapscope {
namespace {

constexpr size_t kMostKnownNames = 16384;

uint8_t narrow_device(uint32_t device) {
  return device < kNoDevice ? static_cast<uint8_t>(device) : kNoDevice;
}

uint16_t narrow_channel(uint32_t channel) {
  return channel < kNoChannel ? static_cast<uint16_t>(channel) : kNoChannel;
}

int64_t time_of(uint64_t value) { return static_cast<int64_t>(value); }

std::string text_of(const CUuuid& uuid) {
  char text[37];
  const auto* b = reinterpret_cast<const uint8_t*>(uuid.bytes);
  snprintf(text, sizeof text,
           "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
           b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
           b[15]);
  return text;
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = strncmp(name, "_Z", 2) == 0
                   ? abi::__cxa_demangle(name, nullptr, nullptr, &status)
                   : nullptr;
  std::string result = text != nullptr && status == 0 ? text : name;
  free(text);
  return result;
}

template <typename T>
const T& as(const CUpti_Activity* record) {
  return *reinterpret_cast<const T*>(record);
}

// The number in an enum's field: a newer library may have values that the enum here has no room for.
#define GAPSCOPE_NUMBER(record, field) number_at(&record, offsetof(decltype(plain(record)), field))
template <typename T>
T plain(const T&);
uint32_t number_at(const void* record, size_t offset) {
  uint32_t number;
  memcpy(&number, static_cast<const uint8_t*>(record) + offset, sizeof number);
  return number;
}

}  // namespace

void Decoder::decode(uint8_t* buffer, size_t valid) {
  CUpti_Activity* record = nullptr;
  // Only the running library knows how far apart its records are; sizeof here is not it.
  while (cupti_.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    ++records_;
    row(record);
    if (records_ % 1024 == 0) tables_.flush_full();
  }
  tables_.flush_full();
}

void Decoder::row(const CUpti_Activity* record) {
  switch (GAPSCOPE_NUMBER(*record, kind)) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return kernel(as<CUpti_ActivityKernel10>(record));
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return api(as<CUpti_ActivityAPI>(record), ApiDomain::kRuntime);
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return api(as<CUpti_ActivityAPI>(record), ApiDomain::kDriver);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return copy(as<CUpti_ActivityMemcpy6>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return peer_copy(as<CUpti_ActivityMemcpyPtoP4>(record));
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return set(as<CUpti_ActivityMemset4>(record));
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return graph(as<CUpti_ActivityGraphTrace2>(record));
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      return event(as<CUpti_ActivityCudaEvent2>(record));
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sync(as<CUpti_ActivitySynchronization2>(record));
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return overhead(as<CUpti_ActivityOverhead3>(record));
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return device(as<CUpti_ActivityDevice5>(record));
    case CUPTI_ACTIVITY_KIND_CONTEXT: {
      const auto& context = as<CUpti_ActivityContext3>(record);
      return tables_.context.append(context.contextId, context.deviceId,
                                    uint32_t{context.nullStreamId});
    }
    case CUPTI_ACTIVITY_KIND_STREAM: {
      const auto& stream = as<CUpti_ActivityStream>(record);
      return tables_.stream.append(stream.contextId, stream.streamId,
                                   static_cast<int32_t>(stream.priority),
                                   GAPSCOPE_NUMBER(stream, flag));
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& external = as<CUpti_ActivityExternalCorrelation>(record);
      return tables_.external.append(external.correlationId,
                                     GAPSCOPE_NUMBER(external, externalKind),
                                     uint64_t{external.externalId});
    }
    default:
      ++loss_.unknown_records;
  }
}

bool Decoder::has_time(uint64_t start, uint64_t end) {
  if (start != 0 && end != 0) return true;
  ++loss_.ops_without_time;
  return false;
}

void Decoder::kernel(const CUpti_ActivityKernel10& record) {
  if (!has_time(record.start, record.end)) return;
  tables_.kernel.append(
      time_of(record.start), time_of(record.end), kernel_name(record.name),
      uint32_t{record.correlationId}, uint32_t{record.contextId}, uint32_t{record.streamId},
      uint64_t{record.graphNodeId}, uint32_t{record.graphId}, static_cast<uint32_t>(record.gridX),
      // CUDA's limits: 65535 for y and z of a grid, 1024 for a block.
      static_cast<uint16_t>(record.gridY), static_cast<uint16_t>(record.gridZ),
      static_cast<uint16_t>(record.blockX), static_cast<uint16_t>(record.blockY),
      static_cast<uint16_t>(record.blockZ), narrow_channel(record.channelID),
      narrow_device(record.deviceId));
}

void Decoder::copy(const CUpti_ActivityMemcpy6& record) {
  if (!has_time(record.start, record.end)) return;
  tables_.memcpy.append(time_of(record.start), time_of(record.end), uint64_t{record.bytes},
                        uint32_t{record.correlationId}, uint32_t{record.contextId},
                        uint32_t{record.streamId}, uint64_t{record.graphNodeId},
                        uint32_t{record.graphId}, narrow_channel(record.channelID),
                        narrow_device(record.deviceId), kNoDevice, kNoDevice, record.copyKind,
                        record.srcKind, record.dstKind);
}

void Decoder::peer_copy(const CUpti_ActivityMemcpyPtoP4& record) {
  if (!has_time(record.start, record.end)) return;
  tables_.memcpy.append(time_of(record.start), time_of(record.end), uint64_t{record.bytes},
                        uint32_t{record.correlationId}, uint32_t{record.contextId},
                        uint32_t{record.streamId}, uint64_t{record.graphNodeId},
                        uint32_t{record.graphId}, narrow_channel(record.channelID),
                        narrow_device(record.deviceId), narrow_device(record.srcDeviceId),
                        narrow_device(record.dstDeviceId), record.copyKind, record.srcKind,
                        record.dstKind);
}

void Decoder::set(const CUpti_ActivityMemset4& record) {
  if (!has_time(record.start, record.end)) return;
  tables_.memset.append(time_of(record.start), time_of(record.end), uint64_t{record.bytes},
                        uint32_t{record.correlationId}, uint32_t{record.contextId},
                        uint32_t{record.streamId}, uint64_t{record.graphNodeId},
                        uint32_t{record.graphId}, narrow_channel(record.channelID),
                        narrow_device(record.deviceId), static_cast<uint8_t>(record.memoryKind));
}

void Decoder::graph(const CUpti_ActivityGraphTrace2& record) {
  if (!has_time(record.start, record.end)) return;
  tables_.graph.append(time_of(record.start), time_of(record.end), record.correlationId,
                       record.contextId, record.streamId, record.graphId,
                       narrow_device(record.deviceId));
}

void Decoder::api(const CUpti_ActivityAPI& record, ApiDomain domain) {
  if (record.threadId == own_tid_) return;
  const auto name_of = [&]() -> std::string_view {
    const char* name = nullptr;
    const auto table = domain == ApiDomain::kRuntime ? CUPTI_CB_DOMAIN_RUNTIME_API
                                                     : CUPTI_CB_DOMAIN_DRIVER_API;
    if (cupti_.cuptiGetCallbackName(table, record.cbid, &name) != CUPTI_SUCCESS || name == nullptr) {
      return "[unknown call]";
    }
    return name;
  };
  tables_.api.append(time_of(record.start), time_of(record.end), uint32_t{record.correlationId},
                     tables_.thread(record.threadId),
                     tables_.call(domain, record.cbid, record.returnValue, name_of));
}

void Decoder::event(const CUpti_ActivityCudaEvent2& record) {
  const bool is_joinable = cupti_.has(kVersionEventSyncId);
  tables_.event.append(uint32_t{record.correlationId}, uint32_t{record.contextId},
                       uint32_t{record.streamId}, uint32_t{record.eventId},
                       is_joinable ? uint64_t{record.cudaEventSyncId} : uint64_t{0},
                       is_joinable ? time_of(record.deviceTimestamp) : int64_t{0});
}

void Decoder::sync(const CUpti_ActivitySynchronization2& record) {
  tables_.sync.append(
      time_of(record.start), time_of(record.end), static_cast<uint8_t>(GAPSCOPE_NUMBER(record, type)),
      uint32_t{record.correlationId}, uint32_t{record.contextId}, uint32_t{record.streamId},
      uint32_t{record.cudaEventId},
      cupti_.has(kVersionEventSyncId) ? uint64_t{record.cudaEventSyncId} : uint64_t{0});
}

void Decoder::overhead(const CUpti_ActivityOverhead3& record) {
  const bool is_late = cupti_.has(kVersionOverheadCorrelation);
  const bool has_thread = GAPSCOPE_NUMBER(record, objectKind) == CUPTI_ACTIVITY_OBJECT_THREAD;
  tables_.overhead.append(
      time_of(record.start), time_of(record.end), GAPSCOPE_NUMBER(record, overheadKind),
      is_late ? uint32_t{record.correlationId} : uint32_t{0},
      has_thread ? tables_.thread(record.objectId.pt.threadId) : kNoThread);
  // CUPTI allocates the details and leaves freeing them to us.
  if (is_late && record.overheadData != nullptr) free(record.overheadData);
}

void Decoder::device(const CUpti_ActivityDevice5& record) {
  const uint32_t name = record.name == nullptr ? 0 : tables_.name(record.name);
  tables_.device.append(uint32_t{record.id}, name, tables_.name(text_of(record.uuid)),
                        uint32_t{record.numMultiprocessors},
                        uint32_t{record.computeCapabilityMajor},
                        uint32_t{record.computeCapabilityMinor});
}

uint32_t Decoder::kernel_name(const char* name) {
  if (name == nullptr) return 0;
  const auto found = names_.find(name);
  if (found != names_.end() && strcmp(found->second.text.c_str(), name) == 0) {
    return found->second.id;
  }
  if (names_.size() >= kMostKnownNames) names_.clear();
  KnownName& known = names_[name];
  known.text = name;
  known.id = tables_.name(demangled(name));
  return known.id;
}

}  // namespace gapscope
