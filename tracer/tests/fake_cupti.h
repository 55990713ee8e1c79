// Control of the fake libcupti: what an application's CUDA calls would make the real one record.
#pragma once

#include <cstdint>

extern "C" {
// One launch: an API record and a kernel of `ns` nanoseconds on `stream`; returns the correlation id.
uint32_t fake_launch(const char* kernel, uint32_t stream, uint64_t ns);
// One record of every other kind, with values that tests know.
void fake_one_of_each();
void fake_kernel_without_time();
// A second GPU appears, with its context; later launches are on `device`.
void fake_use_device(uint32_t device);
// cudaEventRecord of an event and cudaStreamWaitEvent on it.
void fake_record(uint32_t event, uint32_t stream);
void fake_wait(uint32_t event, uint32_t stream);
// cudaProfilerStart and Stop.
void fake_profiler(int is_start);
// Whether kernels are recorded now.
int fake_is_recording();
}
