#include "base/result.h"

namespace headroom {

std::string Error::to_string() const {
  std::string line;
  if (!where.empty()) line += where + ": ";
  line += message;
  if (!hint.empty()) line += " (" + hint + ")";
  return line;
}

}  // namespace headroom
