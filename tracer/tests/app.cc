// The traced application of the tests: loads a libcupti (the fake one) and then the tracer as
// libcuda would, plays one scenario, and ends in the scenario's way.
//
//   app LIBCUPTI TRACER SCENARIO [ARGUMENT...]
//
// TRACER `-` is what CUDA_INJECTION64_PATH names; nothing is loaded where it is not set.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "nvtx3/nvToolsExt.h"

namespace {

// Mangled, as CUPTI gives it; `void scale<float>(float*)`.
constexpr const char* kKernel = "_Z5scaleIfEvPT_";

uint32_t (*launch)(const char*, uint32_t, uint64_t) = nullptr;
void (*one_of_each)() = nullptr;
void (*kernel_without_time)() = nullptr;
void (*profiler)(int) = nullptr;
int (*is_recording)() = nullptr;
void (*use_device)(uint32_t) = nullptr;
int (*activity_enable)(int) = nullptr;
int (*register_callbacks)(void*, void*) = nullptr;
void (*record_event)(uint32_t, uint32_t) = nullptr;
void (*wait_event)(uint32_t, uint32_t) = nullptr;
int (*inject)() = nullptr;

void load(const char* cupti, const char* tracer) {
  void* library = dlopen(cupti, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(99);
  }
  launch = reinterpret_cast<decltype(launch)>(dlsym(library, "fake_launch"));
  one_of_each = reinterpret_cast<decltype(one_of_each)>(dlsym(library, "fake_one_of_each"));
  kernel_without_time =
      reinterpret_cast<decltype(kernel_without_time)>(dlsym(library, "fake_kernel_without_time"));
  profiler = reinterpret_cast<decltype(profiler)>(dlsym(library, "fake_profiler"));
  is_recording = reinterpret_cast<decltype(is_recording)>(dlsym(library, "fake_is_recording"));
  activity_enable =
      reinterpret_cast<decltype(activity_enable)>(dlsym(library, "cuptiActivityEnable"));
  use_device = reinterpret_cast<decltype(use_device)>(dlsym(library, "fake_use_device"));
  register_callbacks = reinterpret_cast<decltype(register_callbacks)>(
      dlsym(library, "cuptiActivityRegisterCallbacks"));
  record_event = reinterpret_cast<decltype(record_event)>(dlsym(library, "fake_record"));
  wait_event = reinterpret_cast<decltype(wait_event)>(dlsym(library, "fake_wait"));
  if (strcmp(tracer, "-") == 0) tracer = getenv("CUDA_INJECTION64_PATH");
  if (tracer == nullptr) {
    inject = [] { return 1; };
    return;
  }
  void* ours = dlopen(tracer, RTLD_NOW | RTLD_LOCAL);
  if (ours == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(99);
  }
  inject = reinterpret_cast<decltype(inject)>(dlsym(ours, "InitializeInjection"));
}

void nap(int64_t ns) {
  timespec time{ns / 1000000000, ns % 1000000000};
  nanosleep(&time, nullptr);
}

// Signals are heeded by another thread.
void wait_until_recording(bool is_on) {
  while ((is_recording() != 0) != is_on) nap(1000000);
}

volatile sig_atomic_t handled = 0;

double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void ranges() {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("NCCL");
  nvtxStringHandle_t registered = nvtxDomainRegisterStringA(domain, "ncclAllReduce");
  nvtxRangePushA("step 0");
  nvtxRangePushA("aten::mul, seq = 12, op_id = 34");
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = registered;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  attributes.payload.llValue = 56;
  nvtxDomainRangePushEx(domain, &attributes);
  launch(kKernel, 7, 100);
  nvtxDomainRangePop(domain);
  nvtxRangePop();
  const nvtxRangeId_t id = nvtxRangeStartW(L"l\u00e9ger");
  nvtxMarkA("here");
  nvtxRangeEnd(id);
  nvtxRangePop();
  nvtxRangePop();          // one too many
  nvtxRangePushA("open");  // one too few
}

// Stream 20 waits for others; every kernel has a length of its own, so that tests can tell them apart.
void events() {
  launch(kKernel, 7, 101);
  record_event(500, 7);
  launch(kKernel, 7, 102);
  wait_event(500, 20);
  launch(kKernel, 20, 201);
  // The event object again, on another stream; two waits for that record.
  launch(kKernel, 8, 103);
  record_event(500, 8);
  wait_event(500, 20);
  wait_event(500, 21);
  launch(kKernel, 20, 202);
  launch(kKernel, 21, 203);
  // Recorded in another thread, waited for in this one.
  std::thread([] {
    launch(kKernel, 9, 104);
    record_event(501, 9);
  }).join();
  wait_event(501, 20);
  launch(kKernel, 20, 204);
  // Recorded before the capture.
  wait_event(777, 20);
  launch(kKernel, 20, 205);
}

// Another client of CUPTI that does not ask whether there is one: it takes over the buffers.
constexpr size_t kTheirBytes = 64 << 10;
alignas(8) char their_buffer[kTheirBytes];

void their_request(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = reinterpret_cast<uint8_t*>(their_buffer);
  *size = kTheirBytes;
  *most = 0;
}

void their_complete(void*, uint32_t, uint8_t*, size_t, size_t) {}

void take_over() {
  register_callbacks(reinterpret_cast<void*>(their_request), reinterpret_cast<void*>(their_complete));
}

void steps(int count);

// What data loaders do: several children of a traced process, each with ranges of its own, and all the
// ways in which they end.
void workers() {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int j = 0; j < 1000; ++j) {
        nvtxRangePushA("load");
        nvtxRangePop();
      }
      if (i % 3 == 0) exit(0);
      if (i % 3 == 1) _exit(0);
      raise(SIGKILL);
    }
    children.push_back(child);
    steps(10);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  steps(10);
}

void steps(int count) {
  for (int i = 0; i < count; ++i) {
    char text[32];
    snprintf(text, sizeof text, "step %d", i);
    nvtxRangePushA(text);
    for (int op = 0; op < 10; ++op) {
      nvtxRangePushA("aten::mul");
      launch(kKernel, 7, 1000);
      nvtxRangePop();
    }
    nvtxRangePop();
  }
}

// `rate` launches a second for `length` seconds; prints what was reached and the CPU time taken.
int launches(double rate, double length) {
  const double start = seconds();
  uint64_t done = 0;
  while (seconds() - start < length) {
    const auto due = static_cast<uint64_t>((seconds() - start) * rate);
    while (done < due) {
      launch(kKernel, 7, 1000);
      ++done;
    }
    nap(50000);
  }
  printf("%llu launches, %.0f a second\n", static_cast<unsigned long long>(done),
         static_cast<double>(done) / (seconds() - start));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 98;
  load(argv[1], argv[2]);
  const std::string scenario = argv[3];
  const std::vector<std::string> arguments(argv + 4, argv + argc);

  if (scenario == "early") nvtxRangePushA("before CUDA");
  if (scenario == "taken-before") {
    // Their buffer is out when the tracer's callbacks take their place.
    take_over();
    activity_enable(10);
    launch(kKernel, 7, 100);
  }
  if (scenario == "early-step") nvtxRangePushA("step 5");
  if (scenario == "signals") signal(SIGUSR2, [](int) { handled = handled + 1; });
  if (scenario == "late-fork") {
    // A process without CUDA forks one that uses it.
    nvtxRangePushA("of the parent");
    const pid_t child = fork();
    if (child == 0) {
      inject();
      steps(2);
      exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  if (inject() != 1) return 97;

  if (scenario == "all") {
    one_of_each();
    kernel_without_time();
    ranges();
    return 7;
  }
  if (scenario == "early-step") {
    launch(kKernel, 7, 100);
    nvtxRangePop();
    steps(3);
    return 0;
  }
  if (scenario == "taken-before") {
    steps(5);
    return 0;
  }
  if (scenario == "taken-over") {
    steps(5);
    nap(atoi(arguments.at(0).c_str()) * 1000000LL);
    steps(1);
    take_over();
    steps(50);
    return 0;
  }
  if (scenario == "devices") {
    for (const uint32_t device : {0, 1, 3}) {
      use_device(device);
      steps(static_cast<int>(device) + 1);
    }
    return 0;
  }
  if (scenario == "workers") {
    steps(10);
    workers();
    return 0;
  }
  if (scenario == "events") {
    events();
    return 0;
  }
  if (scenario == "epoch") {
    nvtxRangePushA("epoch 3");
    steps(atoi(arguments.at(0).c_str()));
    nvtxRangePop();
    return 0;
  }
  if (scenario == "signals") {
    // Prints how often the application's own handler ran.
    nvtxRangePushA("epoch 3");
    steps(1);
    raise(SIGUSR2);
    wait_until_recording(true);
    steps(2);
    raise(SIGUSR2);
    wait_until_recording(false);
    steps(4);
    raise(SIGUSR2);
    nap(50000000);
    steps(8);
    printf("%d\n", static_cast<int>(handled));
    return 0;
  }
  if (scenario == "signal-child") {
    // A child for which the signal means what it meant without a tracer.
    const pid_t child = fork();
    if (child == 0) {
      raise(SIGUSR2);
      exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 94;
  }
  if (scenario == "early") {
    nvtxRangePop();
    launch(kKernel, 7, 100);
    return 0;
  }
  if (scenario == "steps") {
    steps(atoi(arguments.at(0).c_str()));
    return 0;
  }
  if (scenario == "rate") return launches(atof(arguments.at(0).c_str()), atof(arguments.at(1).c_str()));
  if (scenario == "kill" || scenario == "abort" || scenario == "_exit") {
    steps(100);
    nap(atoi(arguments.at(0).c_str()) * 1000000LL);
    steps(100);
    if (scenario == "kill") raise(SIGKILL);
    if (scenario == "abort") abort();
    _exit(5);
  }
  if (scenario == "fork") {
    steps(10);
    const pid_t child = fork();
    if (child == 0) {
      nvtxRangePushA("of the child");
      nvtxRangePop();
      exit(4);
    }
    int status;
    waitpid(child, &status, 0);
    steps(10);
    return WEXITSTATUS(status);
  }
  if (scenario == "exec") {
    steps(10);
    nap(400000000);
    execl("/proc/self/exe", argv[0], argv[1], argv[2], "steps", "20", nullptr);
    return 96;
  }
  if (scenario == "window") {
    steps(1);
    profiler(1);
    steps(2);
    profiler(0);
    steps(4);
    return 0;
  }
  if (scenario == "threads") {
    // NVTX itself starts up without caring for other threads.
    nvtxInitialize(nullptr);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([] { steps(200); });
    for (std::thread& one : threads) one.join();
    return 0;
  }
  if (scenario == "full") {
    // Every write past this size fails, as on a full disk.
    signal(SIGXFSZ, SIG_IGN);
    const auto bytes = static_cast<rlim_t>(atoi(arguments.at(0).c_str()));
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    launches(200000, 1);
    return 6;
  }
  return 95;
}
