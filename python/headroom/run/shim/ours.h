// The functions of libheadroom_torch.so that the shim calls, from the library that the process has
// loaded already; its headers alone are needed to compile.
#pragma once

#include <dlfcn.h>

#include <string>

#include "runtime/abi.h"

namespace headroom::shim {

struct Ours {
  decltype(&::headroom_malloc) malloc = nullptr;
  decltype(&::headroom_release) release = nullptr;
  decltype(&::headroom_device_of) device_of = nullptr;
  decltype(&::headroom_init) init = nullptr;
  decltype(&::headroom_reset) empty_cache = nullptr;
  decltype(&::headroom_set_memory_fraction) set_memory_fraction = nullptr;
  decltype(&::headroom_get_base_allocation) get_base_allocation = nullptr;
  decltype(&::headroom_record_stream) record_stream = nullptr;
  decltype(&::headroom_capture_begin) capture_begin = nullptr;
  decltype(&::headroom_capture_end) capture_end = nullptr;
  decltype(&::headroom_get_statistics) get_statistics = nullptr;
  decltype(&::headroom_reset_peak_statistics) reset_peak_statistics = nullptr;
  decltype(&::headroom_reset_accumulated_statistics) reset_accumulated_statistics = nullptr;
  decltype(&::headroom_memory_info) memory_info = nullptr;
  decltype(&::headroom_largest_free_block) largest_free_block = nullptr;
  decltype(&::headroom_visit_segments) visit_segments = nullptr;
  decltype(&::headroom_on_memory_wanted) on_memory_wanted = nullptr;
  decltype(&::headroom_error) error = nullptr;

  // "" where all was found, else what was not.
  std::string find(const char* path) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return std::string(path) + " is not loaded";
    std::string missing;
    const auto look = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) missing = std::string(path) + " has no " + name;
    };
    look(malloc, "headroom_malloc");
    look(release, "headroom_release");
    look(device_of, "headroom_device_of");
    look(init, "headroom_init");
    look(empty_cache, "headroom_reset");
    look(set_memory_fraction, "headroom_set_memory_fraction");
    look(get_base_allocation, "headroom_get_base_allocation");
    look(record_stream, "headroom_record_stream");
    look(capture_begin, "headroom_capture_begin");
    look(capture_end, "headroom_capture_end");
    look(get_statistics, "headroom_get_statistics");
    look(reset_peak_statistics, "headroom_reset_peak_statistics");
    look(reset_accumulated_statistics, "headroom_reset_accumulated_statistics");
    look(memory_info, "headroom_memory_info");
    look(largest_free_block, "headroom_largest_free_block");
    look(visit_segments, "headroom_visit_segments");
    look(on_memory_wanted, "headroom_on_memory_wanted");
    look(error, "headroom_error");
    return missing;
  }
};

inline Ours ours;  // set once, before the exchange

}  // namespace headroom::shim
