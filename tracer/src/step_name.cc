#include "step_name.h"

namespace gapscope {
namespace {

constexpr size_t kMostDigits = 18;

// Takes the word off the end of the name, in any case; false where the name ends otherwise.
bool take(std::string_view* name, std::string_view word) {
  if (name->size() < word.size()) return false;
  const std::string_view end = name->substr(name->size() - word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = end[i] >= 'A' && end[i] <= 'Z' ? static_cast<char>(end[i] - 'A' + 'a') : end[i];
    if (c != word[i]) return false;
  }
  name->remove_suffix(word.size());
  return true;
}

bool is_training_or_nothing(std::string_view name) {
  if (name.empty()) return true;
  if (name.back() == ' ' || name.back() == '_') name.remove_suffix(1);
  return (take(&name, "training") || take(&name, "train")) && name.empty();
}

}  // namespace

int64_t step_number(std::string_view name) {
  int64_t number = 0;
  int64_t scale = 1;
  size_t digits = 0;
  while (digits < name.size() && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9') {
    if (digits == kMostDigits) return kNoStep;
    number += (name[name.size() - 1 - digits] - '0') * scale;
    scale *= 10;
    ++digits;
  }
  if (digits == 0) return kNoStep;
  name.remove_suffix(digits);
  if (name == "ProfilerStep#") return number;
  while (!name.empty() && std::string_view(" _#:=").find(name.back()) != std::string_view::npos) {
    name.remove_suffix(1);
  }
  for (const std::string_view word : {"global step", "global_step", "step", "iteration", "iter"}) {
    std::string_view rest = name;
    if (take(&rest, word) && is_training_or_nothing(rest)) return number;
  }
  return kNoStep;
}

}  // namespace gapscope
