// Where finished batches go. The null sink separates the cost of recording from that of writing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "columns.h"

namespace gapscope {

class Sink {
 public:
  virtual ~Sink() = default;
  // False when the batch could not be written. What was written before it stays readable.
  virtual bool write(const Columns& batch) = 0;
  // Ends every stream; only a process that ends in an orderly way gets here.
  virtual void close() {}
  virtual uint64_t bytes() const { return 0; }
};

class NullSink : public Sink {
 public:
  bool write(const Columns&) override { return true; }
};

// Keeps the rows as text, for tests.
class MemorySink : public Sink {
 public:
  bool write(const Columns& batch) override;
  const std::vector<std::vector<std::string>>& rows(const std::string& table) {
    return rows_[table];
  }
  bool fail = false;

 private:
  std::map<std::string, std::vector<std::vector<std::string>>> rows_;
};

// Arrow IPC streams `<directory>/<table>.arrows`, each with LZ4 frames around its messages if asked.
std::unique_ptr<Sink> make_ipc_sink(const std::string& directory, bool lz4);

}  // namespace gapscope
