// What the launcher asks for, by environment variables GAPSCOPE_TRACE_*.
#pragma once

#include <cstdint>
#include <string>

namespace gapscope {

// What opens and closes the window in which everything is recorded.
enum class WindowKind : uint8_t { kAll, kProfiler, kSignal, kSteps };

struct Options {
  std::string directory;  // DIR; empty: the library does nothing at all
  std::string cupti;      // CUPTI: path of the libcupti to use when the process has none loaded
  bool is_null_sink = false;         // SINK=null
  bool is_lz4 = false;               // LZ4=1
  bool is_graph_nodes = false;       // GRAPHS=node: a record for every node of a CUDA graph
  // WINDOW=profiler: from cudaProfilerStart to Stop; WINDOW=signal: from the first SIGUSR2 to the
  // next; STEPS=A:B: from the begin of a range named like `step A` to that of `step B`.
  WindowKind window = WindowKind::kAll;
  int64_t first_step = 0;            // of kSteps: recorded is first_step <= N < end_step
  int64_t end_step = INT64_MAX;
  int64_t duration_ns = 0;           // DURATION_MS: stop recording after that long
  int64_t flush_ns = 1'000'000'000;  // FLUSH_MS: how much a killed process loses at most
  size_t buffer_bytes = 256 << 10;   // BUFFER_KIB
  size_t buffer_count = 128;         // BUFFERS
};

Options read_options();

}  // namespace gapscope
