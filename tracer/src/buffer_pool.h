// A fixed set of record buffers. CUPTI takes and returns them on any thread, without a lock; the
// writer thread reads what was returned and gives it back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gapscope {

class BufferPool {
 public:
  BufferPool(size_t count, size_t bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  size_t bytes() const { return bytes_; }

  // A buffer, or nullptr when all are in use.
  uint8_t* take();
  // Whether the buffer is one of the pool.
  bool owns(const uint8_t* buffer) const;
  // Buffers that were taken and have not been completed.
  uint32_t out() const { return out_.load(std::memory_order_relaxed); }
  // Hands a buffer with `valid` bytes of records to the writer.
  void complete(uint8_t* buffer, size_t valid);

  struct Full {
    uint8_t* buffer;
    size_t valid;
  };
  // Calls `use(Full)` for everything completed so far, oldest first, and frees the buffers.
  template <typename Use>
  size_t drain(Use use) {
    size_t count = 0;
    uint32_t next = take_completed();
    while (next != kNone) {
      const uint32_t index = next;
      next = links_[index].load(std::memory_order_relaxed);
      use(Full{at(index), valid_[index]});
      release(index);
      ++count;
    }
    return count;
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;

  uint8_t* at(uint32_t index) const { return memory_ + bytes_ * index; }
  uint32_t take_completed();
  void release(uint32_t index);

  size_t count_;
  size_t bytes_;
  uint8_t* memory_;
  // Next buffer of the list that a buffer is in.
  std::unique_ptr<std::atomic<uint32_t>[]> links_;
  std::unique_ptr<size_t[]> valid_;
  // Low half: first free buffer. High half: counts changes, so that a buffer that was taken and
  // came back in between is noticed.
  std::atomic<uint64_t> free_;
  std::atomic<uint32_t> completed_{kNone};
  std::atomic<uint32_t> out_{0};
};

}  // namespace gapscope
