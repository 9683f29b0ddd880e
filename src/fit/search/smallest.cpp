#include "fit/search/smallest.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/parallel.h"
#include "fit/scenario/scenario.h"
#include "fit/search/network.h"
#include "fit/search/precision.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

namespace {

// A device with as many as do it, and the question as that many are asked it.
struct Found {
  int64_t count = 0;  // 0: none of those that were tried
  std::optional<Scenario> scenario;
};

// Where no number of devices can be asked about (the global batch is a multiple of none), why.
Result<Found> least_of(const FitQuestion& asked, const device::Device& device, int64_t most,
                       SearchCount& search) {
  std::optional<Error> refused;
  Found last;
  for (int64_t count = 1; count <= most; count *= 2) {
    auto question = with_accumulation_of_a_search(asked, count);
    if (!question) {
      if (!refused) refused = question.error();
      continue;
    }
    question->device = device.name;
    HEADROOM_ASSIGN(Scenario scenario, resolve(*question, device));
    HEADROOM_ASSIGN(const bool fits, fits_some_way(scenario, count, search));
    last = {fits ? count : 0, std::move(scenario)};
    if (fits) return last;
  }
  if (refused && !last.scenario) return *refused;
  return last;
}

Result<std::vector<device::Device>> devices_of(const FitQuestion& question,
                                               const std::optional<std::string>& only) {
  HEADROOM_ASSIGN(const auto catalogue, catalogue_with(question.calibration));
  if (only) {
    HEADROOM_ASSIGN(device::Device device, catalogue.find(*only));
    return std::vector{std::move(device)};
  }
  std::vector<device::Device> gpus;
  for (const device::Device& device : catalogue.devices()) {
    const bool is_known = device.memory.known() && device.vendor != device::Vendor::cpu;
    if (is_known) gpus.push_back(device);
  }
  if (gpus.empty()) {
    return Error{ErrorCode::unavailable, "no GPU is known", question.model,
                 "headroom devices lists them"};
  }
  return gpus;
}

Result<Hardware> hardware_of(const Scenario& scenario, const StepTimer& timer, int64_t count,
                             SearchCount& search) {
  Hardware hardware;
  hardware.device = memory_of_device(scenario);
  hardware.device.count = count;
  const SearchState before = search.state();
  const SearchProgress within = [&](const SearchState& state) { search.take(state, before); };
  SearchCount ranked(within);
  HEADROOM_ASSIGN(std::vector<MethodRow> rows, rank_methods(scenario, timer, count, false, ranked));
  search.add_done();
  hardware.row = std::move(rows.front());
  return hardware;
}

}  // namespace

Result<SmallestAnswer> find_smallest(const FitQuestion& question, int64_t most,
                                     const std::optional<std::string>& only,
                                     const SearchProgress& progress) {
  HEADROOM_ASSIGN(const std::vector<device::Device> devices, devices_of(question, only));
  HEADROOM_ASSIGN(const StepTimer timer, StepTimer::make(question.calibration));
  std::vector<Result<Found>> found(devices.size(), Found());
  SearchCount search(progress);
  search.begin_part(static_cast<int64_t>(devices.size()));
  for_each_in_parallel(devices.size(), 0, [&](size_t i) {
    found[i] = least_of(question, devices[i], most, search);
    search.add_done();
  });
  SmallestAnswer answer;
  answer.most = most;
  answer.model = question.model;
  std::vector<size_t> fitting;
  std::map<std::string, std::string> refused;  // by reason, the devices
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!found[i]) {
      std::string& names = refused[found[i].error().message];
      names += (names.empty() ? "" : ", ") + devices[i].name;
    } else if (found[i]->count > 0) {
      fitting.push_back(i);
    } else {
      answer.too_small.push_back(devices[i].name);
    }
  }
  // On no device at all: because of what was asked.
  const bool is_refused = std::ranges::none_of(found, [](const auto& one) { return bool(one); });
  if (is_refused) return found.front().error();
  for (const auto& [reason, names] : refused) answer.notes.push_back(names + ": " + reason);
  std::ranges::stable_sort(fitting, {}, [&](size_t i) {
    const int64_t count = found[i]->count;
    return std::tuple(found[i]->scenario->offered.count * count, count);
  });
  for (size_t i = kMostHardware; i < fitting.size(); ++i) {
    answer.larger.push_back(devices[fitting[i]].name);
  }
  fitting.resize(std::min(fitting.size(), kMostHardware));
  search.begin_part(static_cast<int64_t>(fitting.size()));
  for (const size_t i : fitting) {
    HEADROOM_ASSIGN(Hardware hardware,
                    hardware_of(*found[i]->scenario, timer, found[i]->count, search));
    answer.rows.push_back(std::move(hardware));
  }
  // Where it fits nowhere it is the same step all the same.
  const auto tried = std::ranges::find_if(found, [](const auto& one) { return bool(one); });
  const Result<Found>& shown = fitting.empty() ? *tried : found[fitting.front()];
  HEADROOM_TRY(describe(*shown->scenario, timer, answer));
  if (question.any_precision) answer.notes.emplace_back(kPrecisionChanges);
  return answer;
}

}  // namespace headroom::fit
