#include "device/catalogue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/suggest.h"
#include "device/names.h"
#include "device/overrides.h"
#include "text/gzip.h"
#include "text/utf8.h"

namespace headroom::embedded {
extern const std::string_view kDevicesJson;
}

namespace headroom::device {
namespace {

constexpr Bytes kFileLimit{8 * kMiB};
constexpr size_t kMaxSpec = 2000;

using Words = std::vector<std::string>;

std::string show(std::string_view name) {
  return "'" + text::elide(text::printable(name.substr(0, 200)), 60) + "'";
}

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

std::string join(const std::vector<const Device*>& devices) {
  std::string names;
  for (const Device* device : devices) names += (names.empty() ? "" : ", ") + device->name;
  return names;
}

// Every name of a device, each as its words.
std::vector<Words> words_of(const Device& device) {
  std::vector<Words> all{name_words(device.name), name_words(device.product)};
  for (const std::string& alias : device.aliases) all.push_back(name_words(alias));
  return all;
}

// A board that is called Ti or SUPER is another one than the board without it.
bool is_other_model(const Words& names, const Words& wanted) {
  return std::ranges::any_of(std::array<std::string_view, 2>{"ti", "super"}, [&](auto word) {
    return std::ranges::find(names, word) != names.end() &&
           std::ranges::find(wanted, word) == wanted.end();
  });
}

// The devices with a name of exactly these words; without one, those that have all these words
// among their names, and are no other model. In the order of `devices`.
std::vector<const Device*> matches(const std::vector<Device>& devices, const Words& wanted) {
  if (wanted.empty()) return {};
  std::vector<const Device*> whole;
  std::vector<const Device*> partial;
  for (const Device& device : devices) {
    const std::vector<Words> names = words_of(device);
    Words together;
    for (const Words& words : names) together.insert(together.end(), words.begin(), words.end());
    std::sort(together.begin(), together.end());
    together.erase(std::unique(together.begin(), together.end()), together.end());
    if (std::find(names.begin(), names.end(), wanted) != names.end()) whole.push_back(&device);
    if (std::ranges::includes(together, wanted) && !is_other_model(together, wanted)) {
      partial.push_back(&device);
    }
  }
  return whole.empty() ? partial : whole;
}

std::optional<std::string> user_file() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0') {
    return std::string(config) + "/headroom/devices.json";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.config/headroom/devices.json";
  }
  return std::nullopt;
}

Result<void> merge_file(DeviceCatalogue& catalogue, const std::string& path) {
  HEADROOM_ASSIGN(const std::string content, text::read_input(path, kFileLimit));
  return catalogue.merge(content, path);
}

// The memory of this machine, which is all that is known of "cpu"; a calibration has measured that
// of its own.
void measure_host(Device& cpu) {
  if (cpu.memory.provenance == Provenance::measured) return;
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::optional<int64_t> total = checked_multiply(pages, page);
  if (pages <= 0 || page <= 0 || !total) return;
  cpu.memory = {Bytes(*total), Provenance::measured, "the physical memory of this machine"};
  cpu.usable_memory = cpu.memory;
}

// The first devices that share a model's number with the words: "5070", "a100".
std::vector<std::string_view> relatives_of(const std::vector<Device>& devices,
                                           const Words& wanted) {
  constexpr size_t kMost = 4;
  const auto is_number = [](const std::string& word) {
    return word.size() > 1 && !word.ends_with("gb") &&
           std::ranges::any_of(word, [](char c) { return c >= '0' && c <= '9'; });
  };
  std::vector<std::string_view> relatives;
  for (const Device& device : devices) {
    const Words own = name_words(device.name);
    const bool is_one = std::ranges::any_of(wanted, [&](const std::string& word) {
      return is_number(word) && std::ranges::find(own, word) != own.end();
    });
    if (is_one && relatives.size() < kMost) relatives.push_back(device.name);
  }
  return relatives;
}

// A processor's memory is that of this machine.
Device as_it_is_here(Device device) {
  if (device.vendor == Vendor::cpu) measure_host(device);
  return device;
}

}  // namespace

DeviceCatalogue DeviceCatalogue::built_in() {
  DeviceCatalogue catalogue;
  const Result<void> merged = catalogue.merge(embedded::kDevicesJson, "built-in devices.json");
  HEADROOM_CHECK(merged.has_value(), merged ? "" : merged.error().to_string().c_str());
  return catalogue;
}

Result<void> DeviceCatalogue::merge(std::string_view json, const std::string& file) {
  text::JsonLimits limits;
  limits.bytes = kFileLimit;
  HEADROOM_ASSIGN(const text::Json root, text::parse_json(json, file, limits));
  return merge(text::JsonView(root, file));
}

Result<void> DeviceCatalogue::merge(const text::JsonView& root) {
  // Copies, so that a bad file changes nothing.
  std::vector<FigureSource> sources = sources_;
  std::vector<Device> devices = devices_;
  HEADROOM_TRY(read_device_file(root, sources, devices));
  sources_ = std::move(sources);
  devices_ = std::move(devices);
  return {};
}

Result<DeviceCatalogue> DeviceCatalogue::load() {
  DeviceCatalogue catalogue = built_in();
  if (const char* path = std::getenv("HEADROOM_DEVICES"); path != nullptr && *path != '\0') {
    HEADROOM_TRY(merge_file(catalogue, path));
  }
  const std::optional<std::string> path = user_file();
  std::error_code ignored;
  if (path && std::filesystem::exists(*path, ignored)) HEADROOM_TRY(merge_file(catalogue, *path));
  return catalogue;
}

Error DeviceCatalogue::unknown(std::string_view name) const {
  const auto refuse = [&](const std::string& hint) {
    return usage("device " + show(name) + " is not known", hint);
  };
  std::vector<std::string_view> names;
  names.reserve(devices_.size());
  for (const Device& device : devices_) names.push_back(device.name);
  const std::string_view nearest = nearest_word(name, names);
  if (!nearest.empty()) return refuse("did you mean " + std::string(nearest) + "?");
  const std::vector<std::string_view> relatives = relatives_of(devices_, name_words(name));
  if (relatives.empty()) return refuse("`headroom devices` lists those that are");
  std::string list;
  for (const std::string_view one : relatives) {
    list += (list.empty() ? "" : ", ") + std::string(one);
  }
  return refuse("its relatives are: " + list + "; one of them with figures of your own: " +
                std::string(relatives.front()) + ",memory=...,bandwidth=...");
}

Result<Device> DeviceCatalogue::find_auto(const Detector& detector) const {
  HEADROOM_ASSIGN(const std::vector<DetectedGpu> gpus, detector());
  if (gpus.empty()) {
    return Error{ErrorCode::unavailable, "no GPU was found in this machine", {}, {}};
  }
  const DetectedGpu& gpu = gpus.front();
  std::vector<const Device*> found = matches(devices_, name_words(gpu.name));
  // Products of one name differ in memory: the nearest to what the driver says.
  const auto distance = [&](const Device* device) {
    return std::abs(device->memory.value.count - gpu.memory.count);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Device* a, const Device* b) { return distance(a) < distance(b); });
  if (found.empty() || distance(found.front()) > gpu.memory.count / 10) {
    return Error{ErrorCode::unavailable,
                 "the GPU of this machine, " + show(gpu.name) + " with " +
                     format_bytes(gpu.memory) + ", is not known",
                 {},
                 "describe it in ~/.config/headroom/devices.json, or name a similar device"};
  }
  Device device = *found.front();
  device.memory = {gpu.memory, Provenance::measured, "the driver of this machine"};
  device.usable_memory.value = std::min(device.usable_memory.value, gpu.memory);
  return device;
}

Result<Device> DeviceCatalogue::resolve(std::string_view name, const Detector& detector) const {
  if (name == "auto") return find_auto(detector);
  const auto exact = std::find_if(devices_.begin(), devices_.end(),
                                  [&](const Device& device) { return device.name == name; });
  if (exact != devices_.end()) return as_it_is_here(*exact);
  const std::vector<const Device*> found = matches(devices_, name_words(name));
  if (found.empty()) return unknown(name);
  if (found.size() > 1) {
    return usage("device " + show(name) + " is ambiguous", "it may be " + join(found));
  }
  return as_it_is_here(*found.front());
}

Result<Device> DeviceCatalogue::find(std::string_view spec, const Detector& detector) const {
  if (spec.size() > kMaxSpec) return usage("device " + show(spec) + " is too long");
  const size_t comma = spec.find(',');
  HEADROOM_ASSIGN(Device device, resolve(spec.substr(0, comma), detector));
  if (comma != std::string_view::npos) {
    HEADROOM_TRY(apply_overrides(device, spec.substr(comma + 1)));
  }
  return device;
}

Result<FoundDevice> DeviceCatalogue::find_for_measurement(std::string_view text) const {
  const std::vector<const Device*> found = matches(devices_, measurement_words(text));
  if (found.empty()) return unknown(text);
  FoundDevice result{as_it_is_here(*found.front()), {}};
  if (found.size() > 1) {
    result.assumption = show(text) + " may be " + join(found) + "; taken for the first of them";
  }
  return result;
}

}  // namespace headroom::device
