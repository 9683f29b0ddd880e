#include "headroom/headroom.h"

#include "base/version.h"

namespace headroom {

std::string_view library_version() noexcept { return version(); }

}  // namespace headroom
