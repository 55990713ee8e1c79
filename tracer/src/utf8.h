// Text of the traced program, made what readers can rely on.
#pragma once

#include <string>
#include <string_view>

namespace gapscope {

// Whether the text is UTF-8: Latin-1, a character cut in two or half of a surrogate pair is not.
bool is_utf8(std::string_view text);
// The text with U+FFFD in place of each byte that belongs to no character.
std::string to_utf8(std::string_view text);

}  // namespace gapscope
