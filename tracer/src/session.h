// One traced process: starts CUPTI and NVTX, and owns the thread that writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "buffer_pool.h"
#include "cupti_api.h"
#include "decode.h"
#include "loss.h"
#include "metadata.h"
#include "nvtx_ranges.h"
#include "options.h"
#include "overflow_buffers.h"
#include "sink.h"
#include "tables.h"
#include "window.h"

namespace gapscope {

class Session {
 public:
  // Made at the first injection and never destroyed: records may arrive until the process is gone.
  static Session& get();

  // The process initializes CUDA.
  void start();
  // A shared object of the process makes its first NVTX call.
  bool start_nvtx(const void* (*get_export_table)(uint32_t));

 private:
  Session();

  bool make_directory();
  bool subscribe();
  void configure();
  void open_window(int64_t at_ns);
  void close_window(int64_t at_ns);
  void enable_kinds();
  std::string why_not_open() const;
  void start_writer();
  void check(const char* function, CUptiResult result);

  // CUPTI's threads and the application's.
  static void on_request(uint8_t** buffer, size_t* size, size_t* most_records);
  static void on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t size, size_t valid);
  static void on_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data);
  static void on_step(int64_t number, int64_t time_ns);
  static void at_exit();
  static void after_fork_in_child();

  // The writer thread.
  void write();
  void write_until_stopped();
  void write_rest();
  void drain();
  void tick(int64_t now);
  void heed_signals(int64_t now);
  void count_dropped();
  void save_metadata();
  void wake();

  Options options_;
  std::string directory_;
  Metadata metadata_;
  CuptiApi cupti_;
  Loss loss_;
  CuptiErrors errors_;
  std::unique_ptr<BufferPool> pool_;
  OverflowBuffers overflow_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Tables> tables_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<NvtxRanges> ranges_;
  int owner_pid_ = 0;
  bool is_started_ = false;
  bool has_cupti_ = false;
  bool is_driver_asked_ = false;
  int64_t next_flush_ns_ = 0;
  int64_t next_metadata_ns_ = 0;
  int wake_fd_ = -1;
  // Written by the thread that opens the window, the end last; the writer makes a row of it.
  int64_t opening_start_ns_ = 0;
  uint32_t opening_tid_ = 0;
  std::atomic<int64_t> opening_end_ns_{0};
  std::mutex window_mutex_;
  Window window_;
  std::atomic<int64_t> window_end_ns_{0};
  // The next step that opens or closes the window; later ones of other threads are not for it.
  std::atomic<int64_t> awaited_step_{0};
  bool are_ranges_finished_ = false;
  std::atomic<bool> is_forked_{false};
  std::atomic<bool> is_stopping_{false};
  std::mutex stopped_mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
};

}  // namespace gapscope
