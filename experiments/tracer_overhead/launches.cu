// Host time of a launch in a bare loop: prints ns per launch.
#include <cstdio>
#include <ctime>

__global__ void tiny(int* value) { *value += 1; }

static double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main() {
  constexpr int kLaunches = 200000;
  int* value;
  cudaMalloc(&value, sizeof(int));
  for (int i = 0; i < 5000; ++i) tiny<<<1, 1>>>(value);
  cudaDeviceSynchronize();
  const double start = seconds();
  for (int i = 0; i < kLaunches; ++i) tiny<<<1, 1>>>(value);
  cudaDeviceSynchronize();
  std::printf("%.0f\n", 1e9 * (seconds() - start) / kLaunches);
  return cudaGetLastError() != cudaSuccess;
}
