#include "device/overrides.h"

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/suggest.h"
#include "device/limits.h"
#include "device/power_limit.h"
#include "text/quantity.h"
#include "text/utf8.h"

namespace headroom::device {
namespace {

constexpr std::array<std::string_view, 4> kByteKeys{"memory", "usable_memory", "l2", "context"};
constexpr std::array<std::string_view, 3> kBandwidthKeys{"bandwidth", "link", "pcie"};
constexpr std::string_view kPowerKey = "power";

std::string show(std::string_view text) {
  return "'" + text::elide(text::printable(text.substr(0, 200)), 40) + "'";
}

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

// The user answers for the figure; we know no better basis.
template <typename T>
Figure<T> given(T value) {
  return {value, Provenance::extrapolated, std::string(kGivenByUser)};
}

Error out_of_range(std::string_view key, std::string_view value) {
  return usage("device figure " + std::string(key) + "=" + show(value) +
               " is outside what a machine can have");
}

Result<void> set_bytes(Device& device, std::string_view key, std::string_view value) {
  HEADROOM_ASSIGN(const Bytes bytes, text::parse_bytes(value, key));
  const int64_t least = key == "context" ? 0 : kMinMemory;
  if (bytes.count < least || bytes.count > kMaxMemory) return out_of_range(key, value);
  if (key == "memory") device.memory = device.usable_memory = given(bytes);
  if (key == "usable_memory") device.usable_memory = given(bytes);
  if (key == "l2") device.l2 = given(bytes);
  if (key == "context") device.context = given(BytesInterval{bytes, bytes, bytes});
  return {};
}

Result<void> set_bandwidth(Device& device, std::string_view key, std::string_view value) {
  HEADROOM_ASSIGN(const BytesPerSecond rate, text::parse_bytes_per_second(value, key));
  if (rate.value < kMinBandwidth || rate.value > kMaxBandwidth) return out_of_range(key, value);
  if (key == "bandwidth") device.bandwidth = given(rate);
  if (key == "link") device.link = given(rate);
  if (key == "pcie") device.pcie = given(rate);
  return {};
}

Result<void> set_rate(Device& device, Rate type, std::string_view value) {
  HEADROOM_ASSIGN(const FlopsPerSecond rate, text::parse_flops_per_second(value, name_of(type)));
  if (rate.value < kMinFlops || rate.value > kMaxFlops) return out_of_range(name_of(type), value);
  device.dense_rates[static_cast<size_t>(type)] = given(rate);
  return {};
}

Result<void> apply_one(Device& device, std::string_view key, std::string_view value) {
  std::vector<std::string_view> keys;
  for (const std::string_view known : kByteKeys) {
    if (key == known) return set_bytes(device, known, value);
    keys.push_back(known);
  }
  for (const std::string_view known : kBandwidthKeys) {
    if (key == known) return set_bandwidth(device, known, value);
    keys.push_back(known);
  }
  for (const Rate type : kRates) {
    if (key == name_of(type)) return set_rate(device, type, value);
    keys.push_back(name_of(type));
  }
  keys.push_back(kPowerKey);
  const std::string_view nearest = nearest_word(key, keys);
  return usage("a device has no figure " + show(key),
               nearest.empty() ? "memory, bandwidth and bf16 are some that it has"
                               : "did you mean " + std::string(nearest) + "?");
}

}  // namespace

Result<void> apply_overrides(Device& device, std::string_view list) {
  std::set<std::string_view> seen;
  std::optional<Watts> limit;  // of the rates as they are given
  for (bool more = true; more;) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) list.remove_prefix(comma + 1);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return usage("expected a figure such as bandwidth=8TB/s, found " + show(item));
    }
    const std::string_view key = item.substr(0, equals);
    if (!seen.insert(key).second) return usage("device figure " + show(key) + " is given twice");
    if (key == kPowerKey) {
      HEADROOM_ASSIGN(limit.emplace(), text::parse_watts(item.substr(equals + 1), key));
      continue;
    }
    HEADROOM_TRY(apply_one(device, key, item.substr(equals + 1)));
  }
  if (device.memory.known() && device.usable_memory.value > device.memory.value) {
    return usage("usable_memory is larger than memory");
  }
  return limit ? limit_power(device, *limit) : Result<void>{};
}

}  // namespace headroom::device
