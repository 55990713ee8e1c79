#include "names.h"

namespace gapscope {
namespace {

constexpr size_t kMemoryLimit = 4 << 20;
constexpr size_t kNodeBytes = 80;

}  // namespace

uint32_t Names::id(std::string_view text, bool* is_new) {
  key_.assign(text);
  const auto found = ids_.find(key_);
  *is_new = found == ids_.end();
  if (!*is_new) return found->second;
  if (bytes_ > kMemoryLimit) {
    ids_.clear();
    bytes_ = 0;
  }
  bytes_ += text.size() + kNodeBytes;
  ids_.emplace(key_, next_);
  return next_++;
}

}  // namespace gapscope
