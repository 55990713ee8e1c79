// Strings and other repeated values become small ids; each id is described once in a side table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace gapscope {

// id -> string. Ids grow for ever; what is forgotten to stay within memory simply gets a new id.
class Names {
 public:
  // Sets `is_new` when the id was not handed out before and must be described.
  uint32_t id(std::string_view text, bool* is_new);

 private:
  std::unordered_map<std::string, uint32_t> ids_;
  std::string key_;
  size_t bytes_ = 0;
  uint32_t next_ = 1;
};

}  // namespace gapscope
