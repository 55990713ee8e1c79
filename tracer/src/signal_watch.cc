#include "signal_watch.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace gapscope {
namespace {

constexpr int kSignal = SIGUSR2;

// What the handler uses: nothing that could be under construction or locked when it runs.
std::atomic<uint32_t> seen{0};
std::atomic<int> wake{-1};
struct sigaction before {};

void on_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  seen.fetch_add(1);
  const uint64_t one = 1;
  // Where it cannot be woken the reader looks by itself before long.
  [[maybe_unused]] const ssize_t written = ::write(wake.load(), &one, sizeof one);
  errno = error;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  }
}

}  // namespace

void watch_signal(int wake_fd) {
  wake = wake_fd;
  if (sigaction(kSignal, nullptr, &before) != 0) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  // As little visible as a handler can be: calls go on, and alternate stacks are used.
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(kSignal, &ours, nullptr);
}

uint32_t signals_seen() { return seen.load(); }

void unwatch_signal() {
  struct sigaction now {};
  if (sigaction(kSignal, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_signal) {
    sigaction(kSignal, &before, nullptr);
  }
}

}  // namespace gapscope
