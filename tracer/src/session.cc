#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <thread>

#include "clock.h"
#include "signal_watch.h"

namespace gapscope {
namespace {

// NVTX memory is read this often: it holds seconds of ranges, but not many.
constexpr int kPollMilliseconds = 100;
// Beside the kinds that CUPTI knows: enabling them all, which holds the thread that opens a window.
constexpr uint32_t kOverheadOfOpening = 1u << 31;
constexpr int64_t kMetadataNs = 5'000'000'000;
// How long the end of a process may wait for a disk that does not answer.
constexpr std::chrono::seconds kExitPatience{10};

const CUpti_ActivityKind kLastingKinds[] = {
    CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM};

const CUpti_ActivityKind kWindowKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,            CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,   CUPTI_ACTIVITY_KIND_CUDA_EVENT,
    CUPTI_ACTIVITY_KIND_OVERHEAD,          CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_GRAPH_TRACE};

// Queries that frameworks, NCCL and CUPTI itself (the name of each kernel) make around every launch and
// that no analysis asks for: a third to a half of all calls of a training step.
const CUpti_CallbackId kQuietRuntime[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetErrorName_v6050,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetErrorString_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v10010,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v2_v11030,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v12030,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaThreadExchangeStreamCaptureMode_v10010};
const CUpti_CallbackId kQuietDriver[] = {
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetLimit,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxGetState,
    CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion,
    CUPTI_DRIVER_TRACE_CBID_cuFuncGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuFuncGetName,
    CUPTI_DRIVER_TRACE_CBID_cuGetErrorName,
    CUPTI_DRIVER_TRACE_CBID_cuGetErrorString,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetName,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttributes,
    CUPTI_DRIVER_TRACE_CBID_cuStreamGetCaptureInfo,
    CUPTI_DRIVER_TRACE_CBID_cuStreamGetCaptureInfo_v2,
    CUPTI_DRIVER_TRACE_CBID_cuStreamGetCaptureInfo_v3,
    CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing,
    CUPTI_DRIVER_TRACE_CBID_cuThreadExchangeStreamCaptureMode};

uint64_t CUPTIAPI timestamp() { return static_cast<uint64_t>(monotonic_ns()); }

}  // namespace

Session& Session::get() {
  static Session* session = new Session;
  return *session;
}

Session::Session() : options_(read_options()), owner_pid_(getpid()) {
  if (options_.directory.empty()) return;
  if (options_.window == WindowKind::kSteps) {
    awaited_step_ = options_.first_step;
    watch_steps(on_step);
  }
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

bool Session::start_nvtx(const void* (*get_export_table)(uint32_t)) {
  if (options_.directory.empty() || is_forked_) return false;
  if (!subscribe_nvtx(get_export_table, &loss_)) return false;
  // Before the window too: what is open when it opens belongs to it.
  if (!is_stopping_ && !window_.is_closed()) record_nvtx(true);
  return true;
}

void Session::start() {
  if (options_.directory.empty() || is_forked_ || is_started_) return;
  is_started_ = true;
  owner_pid_ = getpid();
  metadata_.identity = read_identity();
  metadata_.start = read_clocks();
  // Without a place to write there is nothing to trace for, and nowhere to say so.
  if (!make_directory()) {
    close_window(monotonic_ns());
    return;
  }
  pool_.reset(new BufferPool(options_.buffer_count, options_.buffer_bytes));
  metadata_.pool_bytes = options_.buffer_count * options_.buffer_bytes;
  if (options_.is_null_sink) {
    sink_.reset(new NullSink);
  } else {
    sink_ = make_ipc_sink(directory_, options_.is_lz4);
  }
  tables_.reset(new Tables(*sink_, loss_));
  ranges_.reset(new NvtxRanges(*tables_, loss_, window_));
  if (options_.window == WindowKind::kAll) open_window(0);
  if (!cupti_.load(options_.cupti)) {
    metadata_.state = "no cupti";
    metadata_.reason = "no usable libcupti in the process, by GAPSCOPE_TRACE_CUPTI or in its path";
  } else if (subscribe()) {
    metadata_.state = "tracing";
    configure();
  }
  save_metadata();
  start_writer();
  atexit(at_exit);
}

bool Session::make_directory() {
  if (mkdir(options_.directory.c_str(), 0755) != 0 && errno != EEXIST) return false;
  const std::string who =
      metadata_.identity.rank >= 0 ? "rank-" + std::to_string(metadata_.identity.rank) : "process";
  const std::string stem = options_.directory + "/" + who + "-" + std::to_string(getpid());
  directory_ = stem;
  // A process that replaced itself by exec has been here before, under the same number.
  for (int i = 1; mkdir(directory_.c_str(), 0755) != 0; ++i) {
    if (errno != EEXIST || i > 99) return false;
    directory_ = stem + "-" + std::to_string(i);
  }
  return true;
}

bool Session::subscribe() {
  CUpti_SubscriberHandle subscriber = nullptr;
  char holder[256] = "";
  CUptiResult result;
  if (cupti_.cuptiSubscribe_v2 != nullptr) {
    CUpti_SubscriberParams parameters{};
    parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    parameters.subscriberName = "GapScope";
    parameters.oldSubscriberName = holder;
    parameters.oldSubscriberSize = sizeof holder;
    result = cupti_.cuptiSubscribe_v2(&subscriber, on_callback, nullptr, &parameters);
  } else {
    result = cupti_.cuptiSubscribe(&subscriber, on_callback, nullptr);
  }
  if (result != CUPTI_SUCCESS) {
    metadata_.state = "standing back";
    metadata_.reason = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                           ? std::string("CUPTI is held by ") +
                                 (*holder != 0 ? holder : "another tool (its name is not known)")
                           : "cuptiSubscribe failed with " + std::to_string(result);
    return false;
  }
  if (options_.window == WindowKind::kProfiler && cupti_.cuptiEnableCallback != nullptr) {
    for (const CUpti_CallbackId id :
         {CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, CUPTI_DRIVER_TRACE_CBID_cuProfilerStop}) {
      check("cuptiEnableCallback",
            cupti_.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id));
    }
  }
  return true;
}

void Session::configure() {
  if (cupti_.cuptiSetThreadIdType != nullptr) {
    check("cuptiSetThreadIdType",
          cupti_.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
  }
  // CUPTI clears each buffer on the application's thread before it fills it. Handing back cleared ones
  // instead was never faster, and slower in one campaign (experiments/tracer_overhead).
  // Before any kind is enabled: device times are converted to this clock.
  if (cupti_.cuptiActivityRegisterTimestampCallback != nullptr) {
    check("cuptiActivityRegisterTimestampCallback",
          cupti_.cuptiActivityRegisterTimestampCallback(timestamp));
  }
  check("cuptiActivityRegisterCallbacks",
        cupti_.cuptiActivityRegisterCallbacks(on_request, on_complete));
  if (cupti_.cuptiActivityEnableAllSyncRecords != nullptr) {
    // No records of queries whose answer was "not ready".
    check("cuptiActivityEnableAllSyncRecords", cupti_.cuptiActivityEnableAllSyncRecords(0));
  }
  for (const CUpti_ActivityKind kind : kLastingKinds) {
    check("cuptiActivityEnable (lasting)", cupti_.cuptiActivityEnable(kind));
  }
  const std::lock_guard<std::mutex> lock(window_mutex_);
  has_cupti_ = true;
  if (window_.is_open()) enable_kinds();
}

// On the thread that opens it, so that its next call is recorded.
void Session::open_window(int64_t at_ns) {
  const std::lock_guard<std::mutex> lock(window_mutex_);
  if (!window_.open(at_ns)) return;
  if (options_.duration_ns > 0) window_end_ns_ = monotonic_ns() + options_.duration_ns;
  if (!has_cupti_) return;
  opening_start_ns_ = monotonic_ns();
  opening_tid_ = static_cast<uint32_t>(syscall(SYS_gettid));
  enable_kinds();
  opening_end_ns_ = monotonic_ns();
}

void Session::enable_kinds() {
  for (const CUpti_ActivityKind kind : kWindowKinds) {
    // Tracing whole graphs hides their nodes.
    if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && options_.is_graph_nodes) continue;
    check("cuptiActivityEnable", cupti_.cuptiActivityEnable(kind));
  }
  // Optional: they exist from 12.6 on, and a library may not know each function.
  if (cupti_.cuptiActivityEnableRuntimeApi != nullptr) {
    for (const CUpti_CallbackId id : kQuietRuntime) cupti_.cuptiActivityEnableRuntimeApi(id, 0);
  }
  if (cupti_.cuptiActivityEnableDriverApi != nullptr) {
    for (const CUpti_CallbackId id : kQuietDriver) cupti_.cuptiActivityEnableDriverApi(id, 0);
  }
}

// Once closed it stays closed: CUPTI before 13.1 loses correlation ids of graph launches in later
// sessions.
void Session::close_window(int64_t at_ns) {
  const std::lock_guard<std::mutex> lock(window_mutex_);
  const bool was_open = window_.is_open();
  if (!window_.close(at_ns)) return;
  watch_steps(nullptr);
  record_nvtx(false);
  if (!was_open || !has_cupti_) return;
  for (const CUpti_ActivityKind kind : kWindowKinds) {
    if (cupti_.cuptiActivityDisable != nullptr) cupti_.cuptiActivityDisable(kind);
  }
}

void Session::check(const char* function, CUptiResult result) {
  if (result != CUPTI_SUCCESS) errors_.note(function, result);
}

void Session::on_request(uint8_t** buffer, size_t* size, size_t* most_records) {
  Session& self = get();
  *most_records = 0;
  *size = self.pool_->bytes();
  *buffer = self.pool_->take();
  if (*buffer != nullptr) return;
  if (self.cupti_.has(kVersionMayRefuseBuffers)) {
    *size = 0;
    self.loss_.buffers_refused.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  *size = OverflowBuffers::kBytes;
  *buffer = self.overflow_.make();
}

void Session::on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Session& self = get();
  if (self.pool_->owns(buffer)) {
    self.pool_->complete(buffer, valid);
    self.wake();
  } else if (self.overflow_.release(buffer) && valid > 0) {
    self.loss_.buffers_discarded.fetch_add(1, std::memory_order_relaxed);
  }
}

void Session::on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                          const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  Session& self = get();
  if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart && call->callbackSite == CUPTI_API_EXIT) {
    self.open_window(monotonic_ns());
  } else if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop &&
             call->callbackSite == CUPTI_API_ENTER) {
    self.close_window(monotonic_ns());
  }
}

void Session::on_step(int64_t number, int64_t time_ns) {
  Session& self = get();
  if (number < self.awaited_step_.load(std::memory_order_relaxed)) return;
  try {
    if (number >= self.options_.end_step) {
      self.awaited_step_ = INT64_MAX;
      self.close_window(time_ns);
    } else {
      self.awaited_step_ = self.options_.end_step;
      self.open_window(time_ns);
    }
  } catch (...) {
    // Out of memory for a note of what CUPTI refused: the application goes on.
  }
}

void Session::start_writer() {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  // The application's signals are the application's.
  if (options_.window == WindowKind::kSignal) watch_signal(wake_fd_);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { write(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Session::wake() {
  const uint64_t one = 1;
  // Full or gone: the writer looks by itself before long.
  if (::write(wake_fd_, &one, sizeof one) < 0) return;
}

void Session::write() {
  pthread_setname_np(pthread_self(), "gapscope-trace");
  try {
    write_until_stopped();
    write_rest();
  } catch (...) {
    // Out of memory: what is written stays, the application goes on.
    close_window(monotonic_ns());
  }
  const std::lock_guard<std::mutex> lock(stopped_mutex_);
  is_stopped_ = true;
  stopped_.notify_all();
}

void Session::write_until_stopped() {
  decoder_.reset(new Decoder(cupti_, *tables_, loss_, static_cast<uint32_t>(syscall(SYS_gettid))));
  next_flush_ns_ = monotonic_ns() + options_.flush_ns;
  while (!is_stopping_) {
    pollfd wait{wake_fd_, POLLIN, 0};
    uint64_t count;
    if (poll(&wait, 1, kPollMilliseconds) > 0 && ::read(wake_fd_, &count, sizeof count) < 0) {
      // Nothing to do: the buffers are looked for in any case.
    }
    drain();
    tick(monotonic_ns());
  }
}

void Session::write_rest() {
  close_window(monotonic_ns());
  if (has_cupti_) {
    cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    count_dropped();
    // After a forced flush CUPTI holds none.
    loss_.buffers_taken_over += pool_->out();
  }
  drain();
  ranges_->finish();
  const ClockPair now = read_clocks();
  tables_->clock.append(now.monotonic_ns, now.realtime_ns, now.uncertainty_ns);
  tables_->flush_all();
  sink_->close();
  if (metadata_.state == "tracing") metadata_.state = "finished";
  save_metadata();
}

void Session::drain() {
  if (const int64_t end_ns = opening_end_ns_.exchange(0); end_ns != 0) {
    tables_->overhead.append(opening_start_ns_, end_ns, kOverheadOfOpening, uint32_t{0},
                             tables_->thread(opening_tid_));
  }
  pool_->drain([this](const BufferPool::Full& full) { decoder_->decode(full.buffer, full.valid); });
  ranges_->drain();
}

void Session::tick(int64_t now) {
  if (options_.window == WindowKind::kSignal) heed_signals(now);
  if (window_end_ns_ != 0 && now >= window_end_ns_) close_window(now);
  if (window_.is_closed() && !are_ranges_finished_) {
    are_ranges_finished_ = true;
    ranges_->drain();
    ranges_->finish();
  }
  if (now < next_flush_ns_) return;
  next_flush_ns_ = now + options_.flush_ns;
  if (has_cupti_) {
    cupti_.cuptiActivityFlushAll(0);
    drain();
    count_dropped();
  }
  tables_->flush_all();
  if (now < next_metadata_ns_) return;
  next_metadata_ns_ = now + kMetadataNs;
  const ClockPair clocks = read_clocks();
  tables_->clock.append(clocks.monotonic_ns, clocks.realtime_ns, clocks.uncertainty_ns);
  if (!is_driver_asked_ && decoder_->records() > 0) {
    is_driver_asked_ = true;
    ask_driver(&metadata_);
  }
  save_metadata();
}

// The first opens, the next one closes; any more mean nothing.
void Session::heed_signals(int64_t now) {
  const uint32_t seen = signals_seen();
  if (seen >= 1) open_window(now);
  if (seen >= 2) close_window(now);
}

// Reading the number resets it.
void Session::count_dropped() {
  size_t dropped = 0;
  if (cupti_.cuptiActivityGetNumDroppedRecords != nullptr &&
      cupti_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS) {
    loss_.records_dropped += dropped;
  }
}

std::string Session::why_not_open() const {
  switch (options_.window) {
    case WindowKind::kAll:
      return "";
    case WindowKind::kProfiler:
      return "its window never opened: the program did not call cudaProfilerStart";
    case WindowKind::kSignal:
      return "its window never opened: no SIGUSR2 arrived";
    case WindowKind::kSteps:
      return awaited_step_ == INT64_MAX
                 ? "its window never opened: the first step was one behind it"
                 : "its window never opened: no NVTX range named like `step " +
                       std::to_string(options_.first_step) + "` began";
  }
  return "";
}

void Session::save_metadata() {
  if (has_cupti_) metadata_.reason = window_.was_opened() ? "" : why_not_open();
  metadata_.records = decoder_ ? decoder_->records() : 0;
  metadata_.rows = tables_->rows_written();
  metadata_.stream_bytes = sink_->bytes();
  metadata_.writer_cpu_ns = decoder_ ? thread_cpu_ns() : 0;
  write_metadata(directory_, metadata_, options_, cupti_, loss_, errors_);
}

void Session::at_exit() {
  Session& self = get();
  if (self.is_forked_ || getpid() != self.owner_pid_) return;
  self.is_stopping_ = true;
  self.wake();
  std::unique_lock<std::mutex> lock(self.stopped_mutex_);
  self.stopped_.wait_for(lock, kExitPatience, [&self] { return self.is_stopped_; });
}

void Session::after_fork_in_child() {
  Session& self = get();
  forget_nvtx_after_fork();
  // CUDA does not survive a fork, and our thread did not either. A child of a process without CUDA
  // may still become one with.
  self.is_forked_ = self.is_started_;
  if (self.is_started_) {
    unwatch_signal();
    return;
  }
  // Another thread may have held it.
  new (&self.window_mutex_) std::mutex;
  self.window_.forget();
  self.awaited_step_ = self.options_.first_step;
  if (self.options_.window == WindowKind::kSteps) watch_steps(on_step);
  record_nvtx(true);
}

}  // namespace gapscope
