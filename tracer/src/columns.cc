#include "columns.h"

#include <cstring>

namespace gapscope {
namespace {

// 2 MB of kernel rows: large enough that the message around a batch costs nothing.
constexpr size_t kBatchRows = 32768;
// Rows that fit on top, so that not every row needs to be looked at: see Columns::full().
constexpr size_t kSlackRows = 2048;
constexpr size_t kCapacity = kBatchRows + kSlackRows;
constexpr size_t kBatchTextBytes = 1 << 20;
constexpr size_t kAlignment = 64;

}  // namespace

bool Columns::full() const { return rows_ >= kBatchRows || text_.size() >= kBatchTextBytes; }

void Columns::clear() {
  rows_ = 0;
  text_.clear();
}

void Columns::allocate() {
  size_t bytes = kAlignment;
  for (size_t i = 0; i < spec_->column_count; ++i) {
    // One more value than rows: text columns have an offset at both ends.
    bytes += (kCapacity + 1) * width_of(spec_->columns[i].type) + kAlignment;
  }
  data_.reset(new uint8_t[bytes]);
  auto next = reinterpret_cast<uintptr_t>(data_.get());
  for (size_t i = 0; i < spec_->column_count; ++i) {
    next = (next + kAlignment - 1) / kAlignment * kAlignment;
    starts_.push_back(reinterpret_cast<uint8_t*>(next));
    next += (kCapacity + 1) * width_of(spec_->columns[i].type);
  }
}

void Columns::store(size_t column, std::string_view value) {
  assert(spec_->columns[column].type == Type::kText);
  auto* offsets = reinterpret_cast<int32_t*>(starts_[column]);
  if (rows_ == 0) offsets[0] = 0;
  text_.insert(text_.end(), value.begin(), value.end());
  offsets[rows_ + 1] = static_cast<int32_t>(text_.size());
}

}  // namespace gapscope
