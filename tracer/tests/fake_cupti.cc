// A libcupti of our own: the functions that the tracer calls, fed by a script instead of a GPU.
//
// Built once for each version that it stands for (FAKE_VERSION, as cuptiGetVersion numbers them).
// Records lie as far apart as in that version, and bytes that the version does not define are filled
// with 0xa5, so that reading a field before its time gives nonsense.
#include "fake_cupti.h"

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#ifndef FAKE_VERSION
#error FAKE_VERSION says which CUPTI this is
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kPoison = 0xa5;

struct State {
  std::mutex mutex;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc clock = nullptr;
  CUpti_CallbackFunc callback = nullptr;
  std::set<int> kinds;
  std::set<uint32_t> quiet_runtime, quiet_driver;
  uint8_t* buffer = nullptr;
  size_t size = 0, used = 0, dropped = 0;
  uint32_t correlation = 0;
  bool is_thread_system = false;
  uint32_t device = 0;
  // Sync id of an event's latest record.
  std::map<uint32_t, uint64_t> recorded;
  uint64_t sync_ids = 1000;
};

State& state() {
  static State* instance = new State;
  return *instance;
}

// Bytes of a record that the version defines, and distance to the next one.
size_t stride(CUpti_ActivityKind kind) {
  constexpr uint32_t v = FAKE_VERSION;
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return v >= 130400 ? 248 : v >= 130300 ? 232 : v >= 130100 ? 224 : v >= 130000 ? 216 : 208;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return v >= 130400 ? 112 : v >= 26 ? 96 : 88;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return 96;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return 88;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return 40;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return v >= 26 ? 56 : 40;
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      return v >= 130500 ? 80 : v >= 26 ? 56 : 24;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return 24;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return v >= 22 ? 56 : 40;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return v >= 22 ? 56 : 48;
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return 184;
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      return v >= 130100 ? 40 : v >= 24 ? 32 : v >= 22 ? 24 : 16;
    case CUPTI_ACTIVITY_KIND_STREAM:
      return 24;
    default:
      return 64;
  }
}

uint64_t now() {
  if (state().clock != nullptr) return state().clock();
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

uint32_t own_thread() {
  static thread_local uint32_t id = state().is_thread_system
                                        ? static_cast<uint32_t>(syscall(SYS_gettid))
                                        : static_cast<uint32_t>(pthread_self());
  return id;
}

void hand_over() {
  State& s = state();
  if (s.buffer == nullptr) return;
  s.complete(nullptr, 0, s.buffer, s.size, s.used);
  s.buffer = nullptr;
}

// With the mutex held.
template <typename T>
void record(const T& value) {
  State& s = state();
  const auto kind = value.kind;
  if (s.kinds.count(kind) == 0) return;
  const size_t bytes = stride(kind);
  if (s.buffer != nullptr && s.used + bytes > s.size) hand_over();
  if (s.buffer == nullptr) {
    size_t most = 0;
    s.used = 0;
    s.request(&s.buffer, &s.size, &most);
    if (s.buffer == nullptr || s.size < bytes) {
      if (FAKE_VERSION < 28) abort();  // as the real ones do
      s.buffer = nullptr;
      ++s.dropped;
      return;
    }
  }
  uint8_t* at = s.buffer + s.used;
  memset(at, kPoison, bytes);
  memcpy(at, &value, std::min(bytes, sizeof value));
  s.used += bytes;
}

template <typename T>
T blank(CUpti_ActivityKind kind) {
  T value;
  memset(&value, 0, sizeof value);
  value.kind = kind;
  return value;
}

void call(CUpti_ActivityKind domain, uint32_t cbid, uint64_t start, uint64_t end,
          uint32_t correlation, uint32_t code = 0) {
  const auto& quiet = domain == CUPTI_ACTIVITY_KIND_RUNTIME ? state().quiet_runtime
                                                            : state().quiet_driver;
  if (quiet.count(cbid) != 0) return;
  auto api = blank<CUpti_ActivityAPI>(domain);
  api.cbid = cbid;
  api.start = start;
  api.end = end;
  api.processId = static_cast<uint32_t>(getpid());
  api.threadId = own_thread();
  api.correlationId = correlation;
  api.returnValue = code;
  record(api);
}

}  // namespace

EXPORT CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = FAKE_VERSION;
  return CUPTI_SUCCESS;
}

namespace {
CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback) {
  if (getenv("FAKE_CUPTI_HOLDER") != nullptr) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  state().callback = callback;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&state());
  return CUPTI_SUCCESS;
}
}  // namespace

EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                                  void*) {
  return subscribe(handle, callback);
}

#if FAKE_VERSION >= 130000
EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                                     void*, CUpti_SubscriberParams* parameters) {
  const CUptiResult result = subscribe(handle, callback);
  if (result != CUPTI_SUCCESS) {
    strncpy(parameters->oldSubscriberName, getenv("FAKE_CUPTI_HOLDER"),
            parameters->oldSubscriberSize - 1);
  }
  return result;
}
#endif

EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) { return CUPTI_SUCCESS; }
EXPORT CUptiResult cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                                       CUpti_CallbackId) {
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                        const char** name) {
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    *name = cbid == CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 ? "cudaLaunchKernel_v7000"
                                                                    : "cudaMemcpyAsync_v3020";
  } else {
    *name = "cuLaunchKernel";
  }
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const char* refused = getenv("FAKE_CUPTI_REFUSES");
  if (refused != nullptr && atoi(refused) == kind) return CUPTI_ERROR_INVALID_KIND;
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().kinds.insert(kind);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().kinds.erase(kind);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                  CUpti_BuffersCallbackCompleteFunc complete) {
  state().request = request;
  state().complete = complete;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (!state().kinds.empty()) return CUPTI_ERROR_UNKNOWN;
  state().clock = clock;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid,
                                              CUpti_Activity** next) {
  uint8_t* at = *next == nullptr
                    ? buffer
                    : reinterpret_cast<uint8_t*>(*next) + stride((*next)->kind);
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *next = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  *dropped = state().dropped;
  state().dropped = 0;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityFlushAll(uint32_t) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  hand_over();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  state().is_thread_system = type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM;
  return CUPTI_SUCCESS;
}

#if FAKE_VERSION >= 24
EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t is_on) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (is_on == 0) state().quiet_runtime.insert(id);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t is_on) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (is_on == 0) state().quiet_driver.insert(id);
  return CUPTI_SUCCESS;
}
#endif

EXPORT uint32_t fake_launch(const char* kernel, uint32_t stream, uint64_t ns) {
  State& s = state();
  const uint64_t start = now();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const uint32_t correlation = ++s.correlation;
  const uint64_t end = now();
  call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, start, start,
       ++s.correlation);
  call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuKernelGetName, start, start,
       ++s.correlation);
  call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, start, end,
       correlation);
  auto record_of = blank<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  record_of.start = end;
  record_of.end = end + ns;
  record_of.deviceId = s.device;
  record_of.contextId = s.device + 1;
  record_of.streamId = stream;
  record_of.gridX = 70000;
  record_of.gridY = record_of.gridZ = 2;
  record_of.blockX = 256;
  record_of.blockY = record_of.blockZ = 1;
  record_of.correlationId = correlation;
  record_of.name = kernel;
  record_of.channelID = 5;
  record(record_of);
  return correlation;
}

EXPORT void fake_use_device(uint32_t number) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().device = number;
  auto device = blank<CUpti_ActivityDevice5>(CUPTI_ACTIVITY_KIND_DEVICE);
  device.id = number;
  device.uuid.bytes[15] = static_cast<char>(number);
  device.name = "Fake H200";
  record(device);
  auto context = blank<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT);
  context.contextId = number + 1;
  context.deviceId = number;
  context.nullStreamId = 7;
  record(context);
}

EXPORT void fake_kernel_without_time() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto kernel = blank<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  kernel.name = "lost";
  record(kernel);
}

EXPORT void fake_record(uint32_t event, uint32_t stream) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  auto made = blank<CUpti_ActivityCudaEvent2>(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
  made.contextId = 1;
  made.streamId = stream;
  made.eventId = event;
  made.cudaEventSyncId = s.recorded[event] = ++s.sync_ids;
  made.correlationId = ++s.correlation;
  record(made);
}

EXPORT void fake_wait(uint32_t event, uint32_t stream) {
  State& s = state();
  const uint64_t at = now();
  const std::lock_guard<std::mutex> lock(s.mutex);
  auto wait = blank<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  wait.start = wait.end = at;
  wait.contextId = 1;
  wait.streamId = stream;
  wait.cudaEventId = event;
  wait.cudaEventSyncId = s.recorded[event];
  wait.correlationId = ++s.correlation;
  record(wait);
}

EXPORT void fake_one_of_each() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const uint64_t at = now();

  auto device = blank<CUpti_ActivityDevice5>(CUPTI_ACTIVITY_KIND_DEVICE);
  device.id = 0;
  device.numMultiprocessors = 132;
  device.computeCapabilityMajor = 9;
  for (int i = 0; i < 16; ++i) device.uuid.bytes[i] = static_cast<char>(i);
  device.name = "Fake H200";
  record(device);
  auto context = blank<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT);
  context.contextId = 1;
  context.deviceId = 0;
  context.nullStreamId = 7;
  record(context);
  auto stream = blank<CUpti_ActivityStream>(CUPTI_ACTIVITY_KIND_STREAM);
  stream.contextId = 1;
  stream.streamId = 13;
  stream.priority = static_cast<uint32_t>(-5);
  record(stream);

  auto copy = blank<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.bytes = 4096;
  copy.start = at;
  copy.end = at + 500;
  copy.contextId = 1;
  copy.streamId = 13;
  copy.correlationId = ++s.correlation;
  call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, at - 100, at,
       copy.correlationId);
  record(copy);
  auto peer = blank<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2);
  peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  peer.srcKind = peer.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  peer.bytes = 8192;
  peer.start = at + 600;
  peer.end = at + 900;
  peer.contextId = 1;
  peer.streamId = 13;
  peer.srcDeviceId = 0;
  peer.dstDeviceId = 1;
  peer.correlationId = ++s.correlation;
  record(peer);
  auto set = blank<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  set.bytes = 256;
  set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  set.start = at + 1000;
  set.end = at + 1100;
  set.contextId = 1;
  set.streamId = 7;
  set.correlationId = ++s.correlation;
  record(set);
  auto graph = blank<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  graph.start = at + 2000;
  graph.end = at + 3000;
  graph.contextId = 1;
  graph.streamId = 7;
  graph.graphId = 3;
  graph.correlationId = ++s.correlation;
  record(graph);

  auto event = blank<CUpti_ActivityCudaEvent2>(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
  event.contextId = 1;
  event.streamId = 7;
  event.eventId = 42;
  event.cudaEventSyncId = 1001;
  event.correlationId = ++s.correlation;
  record(event);
  auto wait = blank<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  wait.start = at + 3100;
  wait.end = at + 3200;
  wait.contextId = 1;
  wait.streamId = 13;
  wait.cudaEventId = 42;
  wait.cudaEventSyncId = 1001;
  wait.correlationId = ++s.correlation;
  record(wait);
  auto sync = blank<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  sync.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
  sync.start = at + 3300;
  sync.end = at + 9000;
  sync.contextId = 1;
  sync.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  sync.cudaEventId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  sync.correlationId = ++s.correlation;
  record(sync);

  auto overhead = blank<CUpti_ActivityOverhead3>(CUPTI_ACTIVITY_KIND_OVERHEAD);
  overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL;
  overhead.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
  overhead.objectId.pt.threadId = own_thread();
  overhead.start = at;
  overhead.end = at + 50;
  // From 12.4 on the client frees it; leak checkers see to that.
  overhead.overheadData = FAKE_VERSION >= 22 ? malloc(64) : nullptr;
  if (s.kinds.count(CUPTI_ACTIVITY_KIND_OVERHEAD) == 0) free(overhead.overheadData);
  record(overhead);
  auto external =
      blank<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  external.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  external.externalId = 77;
  external.correlationId = s.correlation;
  record(external);
  call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, at, at + 10,
       ++s.correlation, 700);
}

EXPORT int fake_is_recording() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().kinds.count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != 0;
}

EXPORT void fake_profiler(int is_start) {
  CUpti_CallbackData data;
  memset(&data, 0, sizeof data);
  const auto id = is_start ? CUPTI_DRIVER_TRACE_CBID_cuProfilerStart
                           : CUPTI_DRIVER_TRACE_CBID_cuProfilerStop;
  for (const auto site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    state().callback(nullptr, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }
}
