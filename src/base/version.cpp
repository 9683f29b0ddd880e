#include "base/version.h"

namespace headroom {

std::string_view version() noexcept { return HEADROOM_VERSION; }

}  // namespace headroom
