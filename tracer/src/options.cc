#include "options.h"

#include <stdlib.h>
#include <string.h>

namespace gapscope {
namespace {

std::string text(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The number, or the default where there is none or it is out of bounds.
size_t number(const char* name, size_t least, size_t most, size_t otherwise) {
  const char* value = getenv(name);
  if (value == nullptr || *value < '0' || *value > '9') return otherwise;
  const size_t found = strtoull(value, nullptr, 10);
  return found >= least && found <= most ? found : otherwise;
}

// STEPS=A:B or A:. Anything else is no window.
void read_steps(Options* options) {
  const char* value = getenv("GAPSCOPE_TRACE_STEPS");
  const char* colon = value == nullptr ? nullptr : strchr(value, ':');
  if (colon == nullptr) return;
  const auto digits = [](const char* from, const char* to) {
    return from != to && to - from <= 18 && strspn(from, "0123456789") >= size_t(to - from);
  };
  const char* end = value + strlen(value);
  const bool is_endless = colon + 1 == end;
  if (!digits(value, colon) || !(is_endless || digits(colon + 1, end))) return;
  options->window = WindowKind::kSteps;
  options->first_step = strtoll(value, nullptr, 10);
  if (!is_endless) options->end_step = strtoll(colon + 1, nullptr, 10);
}

}  // namespace

Options read_options() {
  Options options;
  options.directory = text("GAPSCOPE_TRACE_DIR");
  options.cupti = text("GAPSCOPE_TRACE_CUPTI");
  options.is_null_sink = text("GAPSCOPE_TRACE_SINK") == "null";
  options.is_lz4 = text("GAPSCOPE_TRACE_LZ4") == "1";
  options.is_graph_nodes = text("GAPSCOPE_TRACE_GRAPHS") == "node";
  const std::string window = text("GAPSCOPE_TRACE_WINDOW");
  if (window == "profiler") options.window = WindowKind::kProfiler;
  if (window == "signal") options.window = WindowKind::kSignal;
  read_steps(&options);
  const size_t milliseconds = number("GAPSCOPE_TRACE_DURATION_MS", 0, 1'000'000'000'000, 0);
  options.duration_ns = static_cast<int64_t>(milliseconds) * 1'000'000;
  options.flush_ns =
      static_cast<int64_t>(number("GAPSCOPE_TRACE_FLUSH_MS", 10, 3'600'000, 1000)) * 1'000'000;
  options.buffer_bytes = number("GAPSCOPE_TRACE_BUFFER_KIB", 4, 1 << 20, 256) << 10;
  options.buffer_count = number("GAPSCOPE_TRACE_BUFFERS", 1, 60000, 128);
  return options;
}

}  // namespace gapscope
