#include "cli/machine.h"

#include <algorithm>
#include <fstream>

#include "engines/serving_engine.h"
#include "timing/calibration.h"

namespace headroom::cli {

namespace {

// As device_probe.py reads it; "" where the system does not say.
std::string processor_here() {
  constexpr std::string_view kKey = "model name";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(kKey) || colon == std::string::npos) continue;
    const size_t begin = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
    return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return {};
}

}  // namespace

void note_other_machine(const timing::Calibration& calibration, const Console& console) {
  const timing::Machine& measured = calibration.machine;
  const std::string here = processor_here();
  if (measured.kind != "cpu" || here.empty() || here == measured.product) return;
  console.note("the calibration is of another machine, " + measured.product +
               ": what is predicted with it is of that one");
}

Result<Machines> load_machines(const Words& words, const Console& console, OtherMachine told_by) {
  Machines machines;
  HEADROOM_ASSIGN(machines.catalogue, device::DeviceCatalogue::load());
  HEADROOM_ASSIGN(machines.timing, timing::TimingModel::load());
  if (!words.has(kCalibrationFlag.name)) return machines;
  HEADROOM_ASSIGN(machines.calibration,
                  timing::load_calibration(words.value(kCalibrationFlag.name)));
  HEADROOM_TRY(timing::adopt(*machines.calibration, machines.catalogue, machines.timing));
  if (told_by == OtherMachine::console) note_other_machine(*machines.calibration, console);
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

// "0.6.3", of the law "vllm-0.6.3"; "" where its name says none.
std::string version_of(const timing::Engine& law) {
  return law.name.starts_with(law.serves + "-") ? law.name.substr(law.serves.size() + 1) : "";
}

// Of former engines, for a hint: "vllm@0.6.3 and newer ones before 0.8, or ".
std::string former_words(const timing::TimingModel& model) {
  std::string words;
  for (const timing::Engine& engine : model.engines()) {
    if (!engine.is_former()) continue;
    words += engine.serves + "@" + version_of(engine) + " and newer ones before " + engine.before +
             ", or ";
  }
  return words;
}

// The law of a former version; null where none is known. It is of no version before its own,
// by the first two numbers: 0.6 is of "0.6.3".
const timing::Engine* former_law(const std::string& word, const std::string& version,
                                 const timing::TimingModel& model) {
  const timing::Engine* law = is_version(version) ? model.engine_of(word, version) : nullptr;
  const bool is_known =
      law != nullptr && law->is_former() && !timing::is_before(version, version_of(*law), 2);
  return is_known ? law : nullptr;
}

// To be installed: "0.6" is the version that the law is of, "0.7" is 0.7.0.
std::string whole_version(std::string version, const timing::Engine& law) {
  const std::string of_law = version_of(law);
  if (of_law.starts_with(version + ".")) return of_law;
  while (std::ranges::count(version, '.') < 2) version += ".0";
  return version;
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
  if (at == words.size()) return AskedEngine{*engine, {}, {}};
  const std::string version = words.substr(at + 1);
  const timing::Engine* law = former_law(word, version, model);
  if (law == nullptr) {
    return Error{ErrorCode::usage,
                 "nothing is known of '" + version.substr(0, 80) + "', a version of " + word,
                 "--engine",
                 former_words(model) + "no version: " + std::string(names_of(*engine).title)};
  }
  return AskedEngine{*engine, law->name, whole_version(version, *law)};
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
