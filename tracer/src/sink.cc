#include "sink.h"

namespace gapscope {
namespace {

template <typename T>
std::string number(const Columns& batch, size_t column, size_t row) {
  return std::to_string(reinterpret_cast<const T*>(batch.data(column))[row]);
}

std::string value(const Columns& batch, size_t column, size_t row) {
  switch (batch.spec().columns[column].type) {
    case Type::kInt64:
      return number<int64_t>(batch, column, row);
    case Type::kUint64:
      return number<uint64_t>(batch, column, row);
    case Type::kInt32:
      return number<int32_t>(batch, column, row);
    case Type::kUint32:
      return number<uint32_t>(batch, column, row);
    case Type::kUint16:
      return number<uint16_t>(batch, column, row);
    case Type::kUint8:
      return number<uint8_t>(batch, column, row);
    case Type::kText: {
      const auto* offsets = reinterpret_cast<const int32_t*>(batch.data(column));
      return std::string(batch.text().data() + offsets[row],
                         static_cast<size_t>(offsets[row + 1] - offsets[row]));
    }
  }
  return {};
}

}  // namespace

bool MemorySink::write(const Columns& batch) {
  if (fail) return false;
  auto& rows = rows_[batch.spec().name];
  for (size_t row = 0; row < batch.rows(); ++row) {
    std::vector<std::string> values;
    for (size_t i = 0; i < batch.spec().column_count; ++i) values.push_back(value(batch, i, row));
    rows.push_back(std::move(values));
  }
  return true;
}

}  // namespace gapscope
