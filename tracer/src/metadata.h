// meta.json of a process: who it is, what was traced, what was lost. Written when tracing starts,
// every few seconds, and at the end, so that a killed process leaves one too.
#pragma once

#include <cstdint>
#include <string>

#include "clock.h"
#include "cupti_api.h"
#include "loss.h"
#include "options.h"

namespace gapscope {

// Who the process is in its job, from the variables that launchers set.
struct Identity {
  int64_t rank = -1;
  std::string rank_variable;
  int64_t world_size = -1;
};
Identity read_identity();

struct Metadata {
  Identity identity;
  std::string state;   // tracing, finished, standing back, no cupti
  std::string reason;  // of standing back, or of recording nothing so far
  ClockPair start{};
  int driver_version = 0;
  int mps_enabled = -1;  // -1: not known
  uint64_t records = 0;
  uint64_t rows = 0;
  uint64_t stream_bytes = 0;
  uint64_t pool_bytes = 0;
  int64_t writer_cpu_ns = 0;
};

// Replaces `directory`/meta.json in one step.
bool write_metadata(const std::string& directory, const Metadata& metadata, const Options& options,
                    const CuptiApi& cupti, const Loss& loss, const CuptiErrors& errors);

// What the driver tells about itself, where libcuda is loaded.
void ask_driver(Metadata* metadata);

}  // namespace gapscope
