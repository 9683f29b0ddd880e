// TimingModel: what an operator costs on a device, with an interval and where the figure comes
// from.
//
// load() reads the built-in data/timing.json (it is inside the program), then $HEADROOM_TIMING: a
// later file adds laws, and replaces those of the same class and device. A device that has a law of
// its own is asked that one; any other gets the general law by its specification, and its interval
// is what leaving out devices showed. Points that were measured on a device correct the general law
// (correct()). Not changed after it was loaded, so any number of threads may use one; a prediction
// is about a microsecond.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "device/device.h"
#include "timing/call.h"
#include "timing/kriging.h"
#include "timing/law.h"
#include "timing/law_file.h"
#include "timing/measured_point.h"

namespace headroom::timing {

// Versions of an engine by their first numbers ("0.6.3" before "0.8"); words ("0.6.3.post1") end
// them. Pure.
[[nodiscard]] bool is_before(std::string_view version, std::string_view other, int numbers = 32);

// 90 % interval.
struct PredictedTime {
  double seconds = 0;
  double seconds_low = 0;
  double seconds_high = 0;
  double roofline_seconds = 0;  // at the peaks of the device; what no kernel beats but from its L2
  Provenance provenance = Provenance::extrapolated;
  std::string basis;  // for people: which law, from whose tables, its error
};

// How well calls of one class are predicted on a device: what is known of it before any is asked.
struct Standing {
  const Law* law = nullptr;
  size_t points = 0;  // of the device, that correct the law
  // Held-out errors, of large operands and of small ones. With points on a general law the median
  // is not known: then it is 0, and the interval is what other devices' points left.
  HeldOutError large;
  HeldOutError small;
};

class TimingModel {
 public:
  // With the environment as it is. An Error is about the user's file.
  static Result<TimingModel> load();
  static TimingModel built_in();

  // Adds the laws of a headroom.timing/1 text; `file` is used in errors. A bad text changes
  // nothing.
  Result<void> merge(std::string_view json, const std::string& file);
  void merge(LawFile added);

  // interpolated: by a law of this device, within its tables. calibrated: by the general law and
  // the points given to correct(), or by a law of the device and its points, within their shapes.
  // extrapolated: anything else: beyond those shapes, where the interval grows with the distance;
  // arithmetic that the tables lack and stand-ins (call.h), whose interval is at least the general
  // law's. An Error where the
  // class has no law, or the device lacks a figure that the law needs.
  [[nodiscard]] Result<PredictedTime> predict(const Call& call, const device::Device& device) const;

  // From now on calls of `device` (by name) are predicted by these points, up to kMostPoints a
  // class, on top of the device's own law where that can be corrected, of the general one else;
  // they replace earlier ones. An Error where a point has no positive time, or its class no law
  // that can be corrected.
  Result<void> correct(const device::Device& device, const std::vector<MeasuredPoint>& points);
  static constexpr size_t kMostPoints = 512;
  // A factor of 400: points that are further from their law are not of the device.
  static constexpr double kMostResidual = 6;

  [[nodiscard]] const std::vector<Law>& laws() const { return laws_; }
  // By name; a later file's engine of the same name replaces an earlier one.
  [[nodiscard]] const std::vector<Engine>& engines() const { return engines_; }
  // Whose host a step on `device` has: the device's own, else the one of that name, else ("") that
  // of today's engines. Nothing where there is none.
  [[nodiscard]] const Engine* engine_on(std::string_view device, std::string_view name = {}) const;
  // Of a version ("0.6.3") of an engine ("vllm"): the former one's, if it is that old; else
  // today's. Nothing where there is none.
  [[nodiscard]] const Engine* engine_of(std::string_view word, std::string_view version) const;
  // What training's steps add to their kernels; null where no file says it.
  [[nodiscard]] const InStep* in_step(std::string_view name) const;
  // Nothing where the class has no law. The law is this model's.
  [[nodiscard]] std::optional<Standing> standing(OperatorClass kind, std::string_view device) const;
  // The law for calls of that class on that device: its own, or the general one, or null.
  [[nodiscard]] const Law* law_for(OperatorClass kind, std::string_view device) const;
  // By whose law calls of that class are timed there: its own, else that of what stands for it.
  [[nodiscard]] OperatorClass timed_as(OperatorClass kind, std::string_view device) const;

 private:
  // Points of one class on one device: coordinates, and weights of kriging.
  struct Corrected {
    OperatorClass kind{};
    std::string device;
    std::vector<std::vector<double>> coordinates;
    std::vector<double> weights;
    std::vector<device::Rate> rates;  // of the points
    Box box;                          // that they span
  };
  [[nodiscard]] const Law* general_law(OperatorClass kind) const;
  [[nodiscard]] const Law* own_law(OperatorClass kind, std::string_view device) const;
  // What points of that device correct.
  [[nodiscard]] const Law* correctable_law(OperatorClass kind, std::string_view device) const;
  [[nodiscard]] const Corrected* correction_for(OperatorClass kind, std::string_view device) const;
  [[nodiscard]] std::string basis_of(const Law& law, const Features& features) const;
  // Moves a law's time to where the points say it is. The interval's half width then, which grows
  // beyond their shapes.
  static double corrected_by_points(const Law& law, const Corrected& corrected,
                                    const Features& features, double half_width_log,
                                    PredictedTime& time);
  // Nothing for calls as the law's tables or the points have them; else why it is none of those.
  [[nodiscard]] static std::string beyond(const Call& call, const Law& law,
                                          const Corrected* corrected);

  std::vector<Law> laws_;
  std::vector<Engine> engines_;
  std::vector<InStep> steps_;
  std::vector<std::pair<std::string, std::string>> sources_;
  std::vector<Corrected> corrected_;
};

}  // namespace headroom::timing
