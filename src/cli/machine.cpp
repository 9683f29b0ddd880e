#include "cli/machine.h"

#include <algorithm>

#include "engines/serving_engine.h"
#include "timing/calibration.h"

namespace headroom::cli {

Result<Machines> load_machines(const Words& words, const Console& console) {
  Machines machines;
  HEADROOM_ASSIGN(machines.catalogue, device::DeviceCatalogue::load());
  HEADROOM_ASSIGN(machines.timing, timing::TimingModel::load());
  if (!words.has(kCalibrationFlag.name)) return machines;
  HEADROOM_ASSIGN(machines.calibration,
                  timing::load_calibration(words.value(kCalibrationFlag.name)));
  HEADROOM_TRY(timing::adopt(*machines.calibration, machines.catalogue, machines.timing));
  if (!words.has("device")) return machines;
  const auto asked = machines.catalogue.find(words.value("device"));
  const std::string& measured = machines.calibration->device;
  if (asked && asked->name != measured) {
    console.note("the calibration is of " + measured + ": times on " + asked->name +
                 " do not follow from it");
  }
  return machines;
}

namespace {

bool is_version(std::string_view words) {
  constexpr size_t kMost = 32;
  return !words.empty() && words.size() <= kMost && words.front() >= '0' && words.front() <= '9' &&
         words.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz.") == std::string_view::npos;
}

}  // namespace

Result<AskedEngine> read_engine(const std::string& words, const timing::TimingModel& model) {
  const size_t at = std::min(words.find('@'), words.size());
  const std::string word = words.substr(0, at);
  const auto engine = engines::parse_serving_engine(word);
  if (!engine) {
    return Error{ErrorCode::usage,
                 "'" + word.substr(0, 80) + "' is no engine whose commands are known", "--engine",
                 "vllm, sglang, tensorrt-llm or llama.cpp"};
  }
  if (at == words.size()) return AskedEngine{*engine, {}};
  const std::string version = words.substr(at + 1);
  if (!is_version(version)) {
    return Error{ErrorCode::usage, "'" + version.substr(0, 80) + "' is no version of " + word,
                 "--engine", "vllm@0.6; without it as today's engines are"};
  }
  const timing::Engine* law = model.engine_of(word, version);
  const bool is_former = law != nullptr && law->is_former();
  return AskedEngine{*engine, is_former ? law->name : std::string()};
}

std::string Machines::device_for(const Words& words) const {
  if (words.has("device")) return words.value("device");
  return calibration ? calibration->device : "auto";
}

Result<op::DType> dtype_of(const Words& words, op::DType otherwise) {
  if (!words.has("dtype")) return otherwise;
  const std::string name = words.value("dtype");
  const std::optional<op::DType> dtype = op::parse_dtype(name);
  if (dtype == op::DType::bf16 || dtype == op::DType::f16 || dtype == op::DType::f32) return *dtype;
  return Error{ErrorCode::usage,
               "'" + name.substr(0, 80) + "' is not a type that --dtype takes",
               {},
               "bfloat16, float16 or float32"};
}

}  // namespace headroom::cli
