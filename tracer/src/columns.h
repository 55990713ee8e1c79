// One open batch of a table: fixed-width columns, filled row by row on the writer thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gapscope {

enum class Type : uint8_t { kInt64, kUint64, kInt32, kUint32, kUint16, kUint8, kText };

struct ColumnSpec {
  const char* name;
  Type type;
};

struct TableSpec {
  const char* name;
  const ColumnSpec* columns;
  size_t column_count;
};

constexpr size_t width_of(Type type) {
  switch (type) {
    case Type::kInt64:
    case Type::kUint64:
      return 8;
    case Type::kInt32:
    case Type::kUint32:
      return 4;
    case Type::kUint16:
      return 2;
    case Type::kUint8:
      return 1;
    case Type::kText:
      return 4;  // offsets; the bytes are apart
  }
  return 0;
}

template <typename T>
constexpr Type type_of() {
  if constexpr (std::is_same_v<T, int64_t>) return Type::kInt64;
  if constexpr (std::is_same_v<T, uint64_t>) return Type::kUint64;
  if constexpr (std::is_same_v<T, int32_t>) return Type::kInt32;
  if constexpr (std::is_same_v<T, uint32_t>) return Type::kUint32;
  if constexpr (std::is_same_v<T, uint16_t>) return Type::kUint16;
  if constexpr (std::is_same_v<T, uint8_t>) return Type::kUint8;
  if constexpr (std::is_same_v<T, std::string_view>) return Type::kText;
}

class Columns {
 public:
  explicit Columns(const TableSpec& spec) : spec_(&spec) {}

  const TableSpec& spec() const { return *spec_; }
  size_t rows() const { return rows_; }
  // Time to write the batch. At least every 1024 rows this must be asked: only so many more fit.
  bool full() const;
  void clear();

  // Appends one row. The types of the values are the types of the columns, exactly.
  template <typename... T>
  void append(T... values) {
    if (!data_) allocate();
    assert(sizeof...(T) == spec_->column_count);
    size_t column = 0;
    (store(column++, values), ...);
    ++rows_;
  }

  const uint8_t* data(size_t column) const { return starts_[column]; }
  // Bytes of the one text column that a table may have.
  const std::vector<char>& text() const { return text_; }

 private:
  void allocate();

  template <typename T>
  void store(size_t column, T value) {
    assert(spec_->columns[column].type == type_of<T>());
    reinterpret_cast<T*>(starts_[column])[rows_] = value;
  }
  void store(size_t column, std::string_view value);

  const TableSpec* spec_;
  size_t rows_ = 0;
  // Allocated on the first row: most tables of most processes stay empty.
  std::unique_ptr<uint8_t[]> data_;
  std::vector<uint8_t*> starts_;
  std::vector<char> text_;
};

}  // namespace gapscope
