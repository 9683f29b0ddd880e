#include "formats/trace.h"

namespace headroom::formats {

// The keys are views of texts of one's own.
Names::Names(const Names& other) {
  for (const std::string& text : other.texts_) intern(text);
}

uint32_t Names::intern(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  const auto id = static_cast<uint32_t>(texts_.size());
  const std::string& kept = texts_.emplace_back(text);
  ids_.emplace(std::string_view(kept), id);
  bytes_ += text.size();
  return id;
}

uint32_t Names::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? kNone : found->second;
}

}  // namespace headroom::formats
