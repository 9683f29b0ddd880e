#include "runtime/configuration.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace headroom::runtime {
namespace {

constexpr const char* kModeNames[] = {"run", "record", "serve", "off"};

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

int32_t number_in(const char* variable, int32_t otherwise) {
  const char* const text = std::getenv(variable);
  int32_t value = otherwise;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value;
}

}  // namespace

const char* mode_name(Mode mode) { return kModeNames[static_cast<size_t>(mode)]; }

Result<Configuration> configuration_from(const headroom_configuration& given) {
  headroom_configuration whole{};
  if (given.struct_bytes < offsetof(headroom_configuration, plan_path)) {
    return Error{ErrorCode::usage, "struct_bytes is not set", "headroom_configuration", {}};
  }
  std::memcpy(&whole, &given, std::min<size_t>(given.struct_bytes, sizeof whole));
  if (whole.mode < HEADROOM_MODE_RUN || whole.mode > HEADROOM_MODE_OFF) {
    return Error{ErrorCode::usage, "mode " + std::to_string(whole.mode) + " is not known",
                 "headroom_configuration", "0 run, 1 record, 2 serve, 3 off"};
  }
  Configuration configuration;
  configuration.mode = static_cast<Mode>(whole.mode);
  configuration.plan_path = text_or_empty(whole.plan_path);
  configuration.plan_out = text_or_empty(whole.plan_out);
  configuration.record_path = text_or_empty(whole.record_path);
  configuration.driver_path = text_or_empty(whole.driver_path);
  configuration.rank = whole.rank;
  configuration.world_size = std::max(whole.world_size, 1);
  configuration.without_virtual_memory = (whole.flags & HEADROOM_FLAG_NO_VIRTUAL_MEMORY) != 0;
  configuration.always_plans = (whole.flags & HEADROOM_FLAG_ALWAYS_PLAN) != 0;
  configuration.copies_name_devices = (whole.flags & HEADROOM_FLAG_COPIES_NAME_DEVICES) != 0;
  if (configuration.mode == Mode::serve && configuration.plan_path.empty()) {
    return Error{ErrorCode::usage, "mode serve without a plan", "headroom_configuration",
                 "set plan_path"};
  }
  if (configuration.mode == Mode::record && configuration.record_path.empty()) {
    return Error{ErrorCode::usage, "mode record without a file", "headroom_configuration",
                 "set record_path"};
  }
  return configuration;
}

Configuration configuration_from_environment() {
  Configuration configuration;
  const std::string mode = text_or_empty(std::getenv("HEADROOM_RUN_MODE"));
  for (size_t i = 0; i < std::size(kModeNames); ++i) {
    if (mode == kModeNames[i]) configuration.mode = static_cast<Mode>(i);
  }
  configuration.plan_path = text_or_empty(std::getenv("HEADROOM_RUN_PLAN"));
  configuration.plan_out = text_or_empty(std::getenv("HEADROOM_RUN_PLAN_OUT"));
  configuration.record_path = text_or_empty(std::getenv("HEADROOM_RUN_RECORD"));
  configuration.driver_path = text_or_empty(std::getenv("HEADROOM_CUDA_DRIVER"));
  configuration.rank = number_in("RANK", 0);
  configuration.world_size = number_in("WORLD_SIZE", 1);
  return configuration;
}

std::string path_for(const std::string& pattern, int device, int rank) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'd') {
      path += std::to_string(device);
    } else if (next == 'r') {
      path += std::to_string(rank);
    } else if (next == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

}  // namespace headroom::runtime
