#include "metadata.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "utf8.h"

namespace gapscope {
namespace {

constexpr int kMpsEnabled = 133;  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED

const char* const kRankVariables[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
const char* const kWorldSizeVariables[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE",
                                           "PMI_SIZE"};

// Settings that change timing, and nothing else: an environment may hold secrets. The same list as
// ENVIRONMENT_ALLOW_LIST of the reader (a test compares them).
const char* const kAllowedVariables[] = {
    "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
    "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_SCALE_LAUNCH_QUEUES", "CUDA_VISIBLE_DEVICES",
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CTA_POLICY", "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_SHM_DISABLE",
    "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_CUDA_EVENT_CACHE", "TORCH_NCCL_ENABLE_TIMING", "TORCH_NCCL_HIGH_PRIORITY",
};

// In the order of WindowKind.
const char* const kWindowNames[] = {"all", "profiler", "signal", "steps"};

constexpr int64_t kMostRanks = INT32_MAX;

// The variable's value if it is a whole number that a rank can be.
int64_t rank_number(const char* name) {
  const char* value = getenv(name);
  if (value == nullptr || *value == 0) return -1;
  int64_t number = 0;
  for (const char* c = value; *c != 0; ++c) {
    if (*c < '0' || *c > '9' || number > kMostRanks) return -1;
    number = number * 10 + (*c - '0');
  }
  return number <= kMostRanks ? number : -1;
}

// Writes an object member by member.
class Json {
 public:
  void open(const char* key) {
    member(key);
    text_ += '{';
    is_first_ = true;
  }
  void close() {
    text_ += '}';
    is_first_ = false;
  }
  void add(const char* key, const std::string& value) {
    member(key);
    quote(value);
  }
  void add(const char* key, const char* value) { add(key, std::string(value)); }
  void add(const char* key, int64_t value) {
    member(key);
    text_ += std::to_string(value);
  }
  void add(const char* key, uint64_t value) {
    member(key);
    text_ += std::to_string(value);
  }
  void add(const char* key, bool value) {
    member(key);
    text_ += value ? "true" : "false";
  }
  void add(const char* key, const std::vector<std::string>& values) {
    member(key);
    text_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text_ += ", ";
      quote(values[i]);
    }
    text_ += ']';
  }
  const std::string& text() const { return text_; }

 private:
  void member(const char* key) {
    if (key == nullptr) return;
    if (!is_first_) text_ += ",\n";
    is_first_ = false;
    quote(key);
    text_ += ": ";
  }
  void quote(const std::string& value) {
    text_ += '"';
    for (const char c : to_utf8(value)) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escaped[8];
        snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
        text_ += escaped;
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
  bool is_first_ = true;
};

bool replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".part";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return false;
  bool ok = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ok = ::close(file) == 0 && ok;
  ok = ok && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!ok) ::unlink(temporary.c_str());
  return ok;
}

}  // namespace

Identity read_identity() {
  Identity identity;
  for (size_t i = 0; i < sizeof kRankVariables / sizeof *kRankVariables; ++i) {
    identity.rank = rank_number(kRankVariables[i]);
    if (identity.rank < 0) continue;
    identity.rank_variable = kRankVariables[i];
    identity.world_size = rank_number(kWorldSizeVariables[i]);
    break;
  }
  return identity;
}

void ask_driver(Metadata* metadata) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return;
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  const auto attribute =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
  if (version != nullptr) version(&metadata->driver_version);
  int enabled = 0;
  if (attribute != nullptr && attribute(&enabled, kMpsEnabled, 0) == 0) {
    metadata->mps_enabled = enabled;
  }
  dlclose(driver);
}

bool write_metadata(const std::string& directory, const Metadata& m, const Options& options,
                    const CuptiApi& cupti, const Loss& loss, const CuptiErrors& errors) {
  Json json;
  json.open(nullptr);
  json.add("format", "gapscope-trace/1");
  json.add("tracer_version", GAPSCOPE_TRACER_VERSION);
  json.add("state", m.state);
  json.add("reason", m.reason);
  json.add("pid", int64_t{getpid()});
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) json.add("hostname", host);
  if (m.identity.rank >= 0) {
    json.add("rank", m.identity.rank);
    json.add("rank_variable", m.identity.rank_variable);
  }
  if (m.identity.world_size >= 0) json.add("world_size", m.identity.world_size);
  json.add("cupti_version", uint64_t{cupti.version});
  json.add("cupti_path", cupti.path);
  json.add("driver_version", int64_t{m.driver_version});
  if (m.mps_enabled >= 0) json.add("mps_enabled", m.mps_enabled != 0);
  json.open("clock_start");
  json.add("monotonic_ns", m.start.monotonic_ns);
  json.add("realtime_ns", m.start.realtime_ns);
  json.add("uncertainty_ns", m.start.uncertainty_ns);
  json.close();
  json.open("options");
  json.add("sink", options.is_null_sink ? "null" : "arrow");
  json.add("lz4", options.is_lz4);
  json.add("graphs", options.is_graph_nodes ? "node" : "graph");
  json.add("window", kWindowNames[static_cast<size_t>(options.window)]);
  if (options.window == WindowKind::kSteps) {
    json.add("first_step", options.first_step);
    if (options.end_step != INT64_MAX) json.add("end_step", options.end_step);
  }
  json.add("duration_ns", options.duration_ns);
  json.add("flush_ns", options.flush_ns);
  json.close();
  json.open("environment");
  for (const char* name : kAllowedVariables) {
    if (const char* value = getenv(name)) json.add(name, value);
  }
  json.close();
  json.open("loss");
  json.add("buffers_refused", loss.buffers_refused.load());
  json.add("buffers_discarded", loss.buffers_discarded.load());
  json.add("buffers_taken_over", loss.buffers_taken_over.load());
  json.add("records_dropped", loss.records_dropped.load());
  json.add("ops_without_time", loss.ops_without_time.load());
  json.add("nvtx_dropped", loss.nvtx_dropped.load());
  json.add("rows_unwritten", loss.rows_unwritten.load());
  json.add("unknown_records", loss.unknown_records.load());
  json.add("unmatched_range_ends", loss.unmatched_range_ends.load());
  json.close();
  json.add("cupti_errors", errors.list());
  json.open("cost");
  json.add("records", m.records);
  json.add("rows", m.rows);
  json.add("stream_bytes", m.stream_bytes);
  json.add("pool_bytes", m.pool_bytes);
  json.add("writer_cpu_ns", m.writer_cpu_ns);
  json.close();
  json.close();
  return replace_file(directory + "/meta.json", json.text() + "\n");
}

}  // namespace gapscope
