#include "buffer_pool.h"

#include <sys/mman.h>

namespace gapscope {

BufferPool::BufferPool(size_t count, size_t bytes)
    : count_(count),
      bytes_(bytes),
      links_(new std::atomic<uint32_t>[count]),
      valid_(new size_t[count]()),
      free_(0) {
  // Resident only where it was ever used.
  void* memory = mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory_ = memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
  if (memory_ == nullptr) {
    count_ = 0;
    free_ = kNone;
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    links_[i] = i + 1 < count ? static_cast<uint32_t>(i + 1) : kNone;
  }
}

BufferPool::~BufferPool() {
  if (memory_ != nullptr) munmap(memory_, count_ * bytes_);
}

uint8_t* BufferPool::take() {
  uint64_t head = free_.load(std::memory_order_acquire);
  for (;;) {
    const auto index = static_cast<uint32_t>(head);
    if (index == kNone) return nullptr;
    const uint32_t next = links_[index].load(std::memory_order_relaxed);
    const uint64_t after = ((head >> 32) + 1) << 32 | next;
    if (free_.compare_exchange_weak(head, after, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      out_.fetch_add(1, std::memory_order_relaxed);
      return at(index);
    }
  }
}

bool BufferPool::owns(const uint8_t* buffer) const {
  return memory_ != nullptr && buffer >= memory_ && buffer < memory_ + count_ * bytes_;
}

void BufferPool::complete(uint8_t* buffer, size_t valid) {
  const auto index = static_cast<uint32_t>(static_cast<size_t>(buffer - memory_) / bytes_);
  out_.fetch_sub(1, std::memory_order_relaxed);
  valid_[index] = valid < bytes_ ? valid : bytes_;
  uint32_t head = completed_.load(std::memory_order_relaxed);
  do {
    links_[index].store(head, std::memory_order_relaxed);
  } while (!completed_.compare_exchange_weak(head, index, std::memory_order_release,
                                             std::memory_order_relaxed));
}

uint32_t BufferPool::take_completed() {
  uint32_t newest = completed_.exchange(kNone, std::memory_order_acquire);
  uint32_t oldest = kNone;
  while (newest != kNone) {
    const uint32_t next = links_[newest].load(std::memory_order_relaxed);
    links_[newest].store(oldest, std::memory_order_relaxed);
    oldest = newest;
    newest = next;
  }
  return oldest;
}

void BufferPool::release(uint32_t index) {
  uint64_t head = free_.load(std::memory_order_relaxed);
  uint64_t after;
  do {
    links_[index].store(static_cast<uint32_t>(head), std::memory_order_relaxed);
    after = ((head >> 32) + 1) << 32 | index;
  } while (!free_.compare_exchange_weak(head, after, std::memory_order_release,
                                        std::memory_order_relaxed));
}

}  // namespace gapscope
