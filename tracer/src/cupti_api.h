// The functions of libcupti that the tracer calls, looked up at run time: the library is never
// linked, so one binary serves CUDA 12 and 13 and a test can put a libcupti of its own in place.
#pragma once

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <cupti_result.h>
#include <cupti_runtime_cbid.h>
#include <cupti_version.h>

#include <string>

namespace gapscope {

// From these versions on a record has the field, or the library the behaviour (cuptiGetVersion).
constexpr uint32_t kVersionOverheadCorrelation = 22;  // 12.4
constexpr uint32_t kVersionEventSyncId = 26;          // 12.8
constexpr uint32_t kVersionMayRefuseBuffers = 28;     // 12.9

struct CuptiApi {
  // nullptr where the library does not export it.
#define GAPSCOPE_FUNCTION(name) decltype(&::name) name = nullptr;
#define GAPSCOPE_FUNCTIONS(X)                    \
  X(cuptiGetVersion)                             \
  X(cuptiSubscribe)                              \
  X(cuptiSubscribe_v2)                           \
  X(cuptiUnsubscribe)                            \
  X(cuptiEnableCallback)                         \
  X(cuptiGetCallbackName)                        \
  X(cuptiActivityEnable)                         \
  X(cuptiActivityDisable)                        \
  X(cuptiActivityRegisterCallbacks)              \
  X(cuptiActivityRegisterTimestampCallback)      \
  X(cuptiActivityGetNextRecord)                  \
  X(cuptiActivityGetNumDroppedRecords)           \
  X(cuptiActivityFlushAll)                       \
  X(cuptiSetThreadIdType)                        \
  X(cuptiActivityEnableRuntimeApi)               \
  X(cuptiActivityEnableDriverApi)                \
  X(cuptiActivityEnableAllSyncRecords)
  GAPSCOPE_FUNCTIONS(GAPSCOPE_FUNCTION)
#undef GAPSCOPE_FUNCTION

  uint32_t version = 0;
  std::string path;  // of the library that was found

  bool has(uint32_t since) const { return version >= since; }

  // The process's own libcupti if it has one, else `fallback` if given, else what the loader finds.
  // False when there is none, or it lacks a function that cannot be done without.
  bool load(const std::string& fallback);
};

}  // namespace gapscope
