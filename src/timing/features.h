// Features: what a law looks at in a call and a device, all natural logarithms, most of them of
// ratios without a unit, so that a law learned on some devices can be asked about another.
//
// The same as features() of tools/timing/law.py, which fits the laws. Pure; thread-safe; some tens
// of nanoseconds.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "timing/call.h"

namespace headroom::timing {

enum class Feature : uint8_t {
  traffic_us,  // bytes / bandwidth (of collectives: / link), in microseconds
  l2,          // bytes / L2
  intensity,   // time of the arithmetic / time of the traffic, both at peak
  waves,       // tiles of 128 x 128 results (128 queries of one head) / multiprocessors
  wave_fill,   // share of the last wave that is filled, where there is more than one
  m,           // of a product
  n,
  k,
  m_fill,     // share of the rows in tiles of 64 that are there, beyond the first tile
  context,    // tokens a sequence
  sequences,  // sequences x heads of keys and values / multiprocessors
  sharing,    // heads that share one head of keys and values
  head_dim,
  width,    // elements a row
  rows,     // rows / multiprocessors
  message,  // bytes of a collective
  group,    // devices of a collective
  density,  // share of the pairs of queries and keys that is computed; of laws of one device alone
};
inline constexpr size_t kFeatures = 18;
[[nodiscard]] std::string_view name_of(Feature feature);
[[nodiscard]] std::optional<Feature> parse_feature(std::string_view name);
// Whether calls of that class have the feature.
[[nodiscard]] bool has_feature(OperatorClass kind, Feature feature);

// What the device would need at its peaks.
struct Roofline {
  double compute_seconds = 0;
  double traffic_seconds = 0;
};

struct Features {
  std::array<double, kFeatures> values{};  // 0 where the class does not have it
  Roofline roofline;
  // Operands of at least kLargeOperands L2 caches; messages of at least kLargeMessage.
  bool large = false;

  [[nodiscard]] double operator[](Feature feature) const {
    return values[static_cast<size_t>(feature)];
  }
};

inline constexpr double kLargeOperands = 2;
inline constexpr Bytes kLargeMessage{kMiB};

// An Error where the device lacks a figure that is needed (its rate for the call, bandwidth, L2,
// multiprocessors): the figure that would have to be given is named.
[[nodiscard]] Result<Features> features_of(const Call& call, const device::Device& device);

}  // namespace headroom::timing
