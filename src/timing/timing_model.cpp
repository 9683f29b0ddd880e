#include "timing/timing_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/gzip.h"
#include "timing/kriging.h"

namespace headroom::embedded {
extern const std::string_view kTimingJson;
}

namespace headroom::timing {

namespace {

constexpr Bytes kFileLimit{16 * kMiB};
constexpr double kDeviationsOfLevel = 1.645;  // that 90 % of a normal distribution lie within

bool same_target(const Law& a, const Law& b) { return a.kind == b.kind && a.device == b.device; }

std::string percent(double value) {
  std::array<char, 32> words{};
  std::snprintf(words.data(), words.size(), "%.1f", value);
  return words.data();
}

std::string joined(const std::vector<std::string>& names) {
  std::string words;
  for (const std::string& name : names) words += (words.empty() ? "" : ", ") + name;
  return words;
}

}  // namespace

bool is_before(std::string_view version, std::string_view other, int numbers) {
  const auto next = [](std::string_view& words) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
    if (error != std::errc{}) {
      words = {};
      return int64_t{0};
    }
    words.remove_prefix(static_cast<size_t>(end - words.data()));
    if (words.starts_with('.')) words.remove_prefix(1);
    return number;
  };
  while (numbers-- > 0 && (!version.empty() || !other.empty())) {
    const int64_t a = next(version);
    const int64_t b = next(other);
    if (a != b) return a < b;
  }
  return false;
}

TimingModel TimingModel::built_in() {
  TimingModel model;
  const Result<void> merged = model.merge(embedded::kTimingJson, "built-in timing.json");
  HEADROOM_CHECK(merged.has_value(), merged ? "" : merged.error().to_string().c_str());
  return model;
}

Result<TimingModel> TimingModel::load() {
  TimingModel model = built_in();
  if (const char* path = std::getenv("HEADROOM_TIMING"); path != nullptr && *path != '\0') {
    HEADROOM_ASSIGN(const std::string content, text::read_input(path, kFileLimit));
    HEADROOM_TRY(model.merge(content, path));
  }
  return model;
}

Result<void> TimingModel::merge(std::string_view json, const std::string& file) {
  text::JsonLimits limits;
  limits.bytes = kFileLimit;
  HEADROOM_ASSIGN(const text::Json root, text::parse_json(json, file, limits));
  HEADROOM_ASSIGN(LawFile added, read_law_file(text::JsonView(root, file)));
  merge(std::move(added));
  return {};
}

void TimingModel::merge(LawFile added) {
  for (Law& law : added.laws) {
    std::erase_if(laws_, [&](const Law& known) { return same_target(known, law); });
    laws_.push_back(std::move(law));
  }
  for (Engine& engine : added.engines) {
    std::erase_if(engines_, [&](const Engine& known) { return known.name == engine.name; });
    engines_.push_back(std::move(engine));
  }
  for (InStep& step : added.steps) {
    std::erase_if(steps_, [&](const InStep& known) { return known.name == step.name; });
    steps_.push_back(std::move(step));
  }
  for (auto& source : added.sources) {
    std::erase_if(sources_, [&](const auto& known) { return known.first == source.first; });
    sources_.push_back(std::move(source));
  }
}

const Engine* TimingModel::engine_on(std::string_view device, std::string_view name) const {
  const auto found = [&](auto&& is_it) {
    const auto one = std::ranges::find_if(engines_, is_it);
    return one == engines_.end() ? nullptr : &*one;
  };
  const auto* own = found([&](const Engine& engine) { return engine.device == device; });
  if (own != nullptr && !device.empty()) return own;
  return found([&](const Engine& engine) {
    return engine.device.empty() && (name.empty() ? !engine.is_former() : engine.name == name);
  });
}

const Engine* TimingModel::engine_of(std::string_view word, std::string_view version) const {
  const auto former = std::ranges::find_if(engines_, [&](const Engine& engine) {
    return engine.is_former() && engine.serves == word && is_before(version, engine.before);
  });
  return former == engines_.end() ? engine_on({}) : &*former;
}

const InStep* TimingModel::in_step(std::string_view name) const {
  const auto found = std::ranges::find(steps_, name, &InStep::name);
  return found == steps_.end() ? nullptr : &*found;
}

const Law* TimingModel::general_law(OperatorClass kind) const {
  const auto found = std::find_if(laws_.begin(), laws_.end(), [&](const Law& law) {
    return law.kind == kind && law.device.empty();
  });
  return found == laws_.end() ? nullptr : &*found;
}

const Law* TimingModel::own_law(OperatorClass kind, std::string_view device) const {
  const auto found = std::find_if(laws_.begin(), laws_.end(), [&](const Law& law) {
    return law.kind == kind && !law.device.empty() && law.device == device;
  });
  return found == laws_.end() ? nullptr : &*found;
}

const Law* TimingModel::law_for(OperatorClass kind, std::string_view device) const {
  const Law* own = own_law(kind, device);
  return own != nullptr ? own : general_law(kind);
}

OperatorClass TimingModel::timed_as(OperatorClass kind, std::string_view device) const {
  while (law_for(kind, device) == nullptr && stands_for(kind) != kind) kind = stands_for(kind);
  return kind;
}

const Law* TimingModel::correctable_law(OperatorClass kind, std::string_view device) const {
  const Law* own = own_law(kind, device);
  return own != nullptr && own->can_correct ? own : general_law(kind);
}

const TimingModel::Corrected* TimingModel::correction_for(OperatorClass kind,
                                                          std::string_view device) const {
  const auto found =
      std::find_if(corrected_.begin(), corrected_.end(), [&](const Corrected& corrected) {
        return corrected.kind == kind && corrected.device == device;
      });
  return found == corrected_.end() ? nullptr : &*found;
}

std::optional<Standing> TimingModel::standing(OperatorClass kind, std::string_view device) const {
  const Corrected* corrected = correction_for(kind, device);
  const Law* law = corrected != nullptr ? correctable_law(kind, device) : law_for(kind, device);
  if (law == nullptr) return std::nullopt;
  Standing standing{law, 0, law->large, law->small};
  if (corrected == nullptr) return standing;
  standing.points = corrected->weights.size();
  if (law->device.empty()) standing.large.median_error_pct = standing.small.median_error_pct = 0;
  standing.large.half_width_log = law->correction.half_width_log_large;
  // Points that were judged were large operands: of small ones they say little, so that the
  // interval does not shrink.
  standing.small.half_width_log =
      std::max(law->small.half_width_log, law->correction.half_width_log_small);
  return standing;
}

std::string TimingModel::basis_of(const Law& law, const Features& features) const {
  const HeldOutError& error = law.error(features);
  std::string words = law.device.empty() ? "general law of " : "law of " + law.device + " for ";
  words += name_of(law.kind);
  if (!law.sources.empty()) words += ", from " + joined(law.sources);
  if (error.rows > 0) {
    words += "; median error " + percent(error.median_error_pct) + " % on ";
    words += law.device.empty() ? "devices left out" : "shapes left out";
    words += features.large ? "" : " (small operands)";
  }
  if (law.holds_boundary(features)) words += "; beyond its tables, the boundary is held";
  return words;
}

std::string TimingModel::beyond(const Call& call, const Law& law, const Corrected* corrected) {
  const bool has_points =
      corrected != nullptr && std::ranges::count(corrected->rates, call.rate) > 0;
  std::string words;
  if (call.flops > 0 && !law.knows(call.rate) && !has_points) {
    words += "; its tables have no " + std::string(device::name_of(call.rate));
  }
  if (call.is_stand_in) {
    words += "; the law of " + std::string(name_of(law.kind)) +
             " stands in for kernels that have none of their own";
  }
  return words;
}

double TimingModel::corrected_by_points(const Law& law, const Corrected& corrected,
                                        const Features& features, double half_width_log,
                                        PredictedTime& time) {
  const Correction& correction = law.correction;
  const Coordinates asked = coordinates_of(correction, features);
  // A law of this device is its points; a general one knows more than they do.
  const Coordinates at = law.device.empty() ? asked : held_within(corrected.box, asked);
  time.seconds *= std::exp(
      bounded_residual(correction, corrected.coordinates, corrected.weights, at, kMostResidual));
  time.provenance = Provenance::calibrated;
  time.basis += "; corrected by " + std::to_string(corrected.weights.size()) + " points of " +
                corrected.device;
  if (at == asked) return half_width_log;
  time.provenance = Provenance::extrapolated;
  time.basis += "; beyond their shapes, the nearest place is taken";
  return std::hypot(half_width_log,
                    kDeviationsOfLevel * std::sqrt(variance_between(correction, asked, at)));
}

Result<PredictedTime> TimingModel::predict(const Call& asked, const device::Device& device) const {
  Call call = asked;
  call.kind = timed_as(asked.kind, device.name);
  const Corrected* corrected = correction_for(call.kind, device.name);
  const std::optional<Standing> known = standing(call.kind, device.name);
  if (!known) {
    return Error{ErrorCode::unavailable,
                 "there is no law for " + std::string(name_of(call.kind)),
                 {},
                 "a headroom.timing/1 file in HEADROOM_TIMING can add one"};
  }
  HEADROOM_ASSIGN(const Features features, features_of(call, device));
  const Law* const law = known->law;
  PredictedTime time;
  time.seconds = law->seconds(features);
  time.roofline_seconds =
      std::max(features.roofline.compute_seconds, features.roofline.traffic_seconds);
  time.basis = basis_of(*law, features);
  double half_width = (features.large ? known->large : known->small).half_width_log;
  if (corrected != nullptr) {
    half_width = corrected_by_points(*law, *corrected, features, half_width, time);
  } else if (!law->device.empty() && !law->holds_boundary(features)) {
    time.provenance = Provenance::interpolated;
  }
  if (const std::string why = beyond(call, *law, corrected); !why.empty()) {
    time.provenance = Provenance::extrapolated;
    time.basis += why;
    const Law* const general = general_law(call.kind);
    if (general != nullptr) {
      half_width = std::max(half_width, general->error(features).half_width_log);
    }
  }
  time.seconds_low = time.seconds * std::exp(-half_width);
  time.seconds_high = time.seconds * std::exp(half_width);
  if (!(time.seconds > 0) || !std::isfinite(time.seconds_high)) {
    return Error{ErrorCode::unavailable,
                 "the law for " + std::string(name_of(call.kind)) + " gives no finite time",
                 device.name,
                 {}};
  }
  return time;
}

Result<void> TimingModel::correct(const device::Device& device,
                                  const std::vector<MeasuredPoint>& points) {
  std::array<std::vector<double>, kOperatorClasses> residuals;
  std::array<Corrected, kOperatorClasses> added;
  for (const MeasuredPoint& point : points) {
    const Law* law = correctable_law(point.call.kind, device.name);
    const std::string name(name_of(point.call.kind));
    if (law == nullptr || !law->can_correct) {
      return Error{ErrorCode::unavailable, "points of " + name + " correct no law", {}, {}};
    }
    if (!(point.seconds > 0) || !std::isfinite(point.seconds)) {
      return Error{ErrorCode::bad_input, "a point of " + name + " has no positive time", {}, {}};
    }
    HEADROOM_ASSIGN(const Features features, features_of(point.call, device));
    const double residual = std::log(point.seconds / law->seconds(features));
    if (!(std::abs(residual) <= kMostResidual)) {
      return Error{ErrorCode::bad_input,
                   "a point of " + name + " is off by more than 400 times on " + device.name,
                   {},
                   "is it of another device, or in another unit?"};
    }
    const size_t kind = static_cast<size_t>(point.call.kind);
    if (residuals[kind].size() == kMostPoints) {
      return Error{ErrorCode::bad_input, "more than 512 points of " + name, {}, {}};
    }
    residuals[kind].push_back(residual);
    added[kind].coordinates.push_back(coordinates_of(law->correction, features));
    if (point.call.flops > 0) added[kind].rates.push_back(point.call.rate);
  }
  for (size_t i = 0; i < kOperatorClasses; ++i) {
    if (residuals[i].empty()) continue;
    added[i].kind = static_cast<OperatorClass>(i);
    added[i].box = box_of(added[i].coordinates);
    added[i].device = device.name;
    added[i].weights = kriging_weights(correctable_law(added[i].kind, device.name)->correction,
                                       added[i].coordinates, residuals[i]);
    std::erase_if(corrected_, [&](const Corrected& known) {
      return known.kind == added[i].kind && known.device == device.name;
    });
    corrected_.push_back(std::move(added[i]));
  }
  return {};
}

}  // namespace headroom::timing
