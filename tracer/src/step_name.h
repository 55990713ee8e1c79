// Recognizes ranges that are steps by their names.
#pragma once

#include <cstdint>
#include <string_view>

namespace gapscope {

// N of `step N`, `ProfilerStep#N`, `iteration N`, `train iter N`, ...: what ingest takes for steps
// (v1.step_range) too. kNoStep for every other name.
constexpr int64_t kNoStep = -1;
int64_t step_number(std::string_view name);

}  // namespace gapscope
