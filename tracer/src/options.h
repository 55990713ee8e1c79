// What the launcher asks for, by environment variables GAPSCOPE_TRACE_*.
#pragma once

#include <cstdint>
#include <string>

namespace gapscope {

struct Options {
  std::string directory;  // DIR; empty: the library does nothing at all
  std::string cupti;      // CUPTI: path of the libcupti to use when the process has none loaded
  bool is_null_sink = false;         // SINK=null
  bool is_lz4 = false;               // LZ4=1
  bool is_graph_nodes = false;       // GRAPHS=node: a record for every node of a CUDA graph
  bool is_profiler_window = false;   // WINDOW=profiler: from cudaProfilerStart to Stop
  int64_t duration_ns = 0;           // DURATION_MS: stop recording after that long
  int64_t flush_ns = 1'000'000'000;  // FLUSH_MS: how much a killed process loses at most
  size_t buffer_bytes = 256 << 10;   // BUFFER_KIB
  size_t buffer_count = 128;         // BUFFERS
};

Options read_options();

}  // namespace gapscope
