#include "loss.h"

namespace gapscope {
namespace {

constexpr size_t kMostErrors = 16;

}  // namespace

void CuptiErrors::note(const char* function, int code) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (list_.size() < kMostErrors) {
    list_.push_back(std::string(function) + ": " + std::to_string(code));
  }
}

std::vector<std::string> CuptiErrors::list() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return list_;
}

}  // namespace gapscope
