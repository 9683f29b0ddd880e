// How much of what it reserves does the runtime use? Programs of several iterations are replayed
// through libheadroom_torch.so and the fake driver, and beside it through the simulator of
// PyTorch's allocator with default and with expandable segments.
//
//   efficiency                 all cases, each in a process of its own, as CSV
//   efficiency CASE            one
//   efficiency --data FOLDER   recorded steps of that folder, repeated
//   --recorded                 those of $HEADROOM_DATA/allocation_traces/pytorch; 77: not there
//   --marks                    the end of each iteration is marked, as the optimizer's hook does
//   --always                   a plan serves even where best fit is predicted to need less
//   --kept                     each case twice: the second run begins with the first one's plan
//   --step-ms N                how long an iteration takes while a plan is being made (500)
//
// Efficiency is peak allocated over peak reserved, allocated in bytes rounded up to 512, counted
// from the moment at which the plan serves ("since") and over the whole run ("whole"); for
// PyTorch's allocator over the same stretches of the same events. "Streams apart" is what no
// allocator beats that shares nothing between streams. A request that fails ends a case, and so do
// two blocks that share a byte, a block that work on another stream still touches, and a rule of
// the driver that is broken: then the exit code is 1. So it is where a plan that served was not
// kept or did not serve the second run (--kept), and where no plan served in any case: then little
// was tried. 2: an unknown word, or no case.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "case.h"
#include "formats/torch_snapshot.h"
#include "memory/caching_allocator.h"
#include "runtime/abi.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/live_ranges.h"

namespace {

using namespace headroom;
using namespace headroom::runtime::perf;

constexpr int64_t kDeviceBytes = 192 * kGiB;
constexpr int kSkipped = 77;  // as ctest is told
constexpr int kUsage = 2;

struct Peaks {
  int64_t allocated = 0;
  int64_t reserved = 0;
  [[nodiscard]] double efficiency_pct() const {
    return reserved == 0 ? 0 : 100 * static_cast<double>(allocated) / static_cast<double>(reserved);
  }
};
struct Both {
  Peaks since, whole;
};

// PyTorch's allocator, driven by the same events.
class Peer {
 public:
  explicit Peer(std::string_view settings)
      : device_(Bytes{1000 * kGiB}, Bytes{1000 * kGiB}),
        allocator_(*memory::parse_allocator_config(settings), device_) {}
  void alloc(uint32_t buffer, const memory::BufferInfo& info) {
    blocks_[buffer] = allocator_.allocate(info.requested_bytes, info.stream)->block;
  }
  void free(uint32_t buffer) {
    allocator_.free(blocks_.at(buffer));
    blocks_.erase(buffer);
  }
  void begin_since() {
    whole_ = now();
    allocator_.reset_peaks();
  }
  [[nodiscard]] Both result() const {
    const Peaks last = now();
    return {last,
            {std::max(last.allocated, whole_.allocated), std::max(last.reserved, whole_.reserved)}};
  }

 private:
  [[nodiscard]] Peaks now() const {
    return {allocator_.statistics().allocated_bytes.peak,
            allocator_.statistics().reserved_bytes.peak};
  }
  memory::DeviceMemory device_;
  memory::CachingAllocator allocator_;
  std::map<uint32_t, memory::BlockId> blocks_;
  Peaks whole_;
};

// What no allocator beats that keeps streams apart, without events between them: each stream's own
// peak has to be there. Over the whole run.
class StreamsApart {
 public:
  void add(uint32_t stream, int64_t bytes) {
    const int64_t rounded = round_up(bytes > 0 ? bytes : -bytes, 512);
    Peaks& one = streams_[stream];  // `reserved` is what lives now
    one.reserved += bytes > 0 ? rounded : -rounded;
    one.allocated = std::max(one.allocated, one.reserved);
    all_.reserved += bytes > 0 ? rounded : -rounded;
    all_.allocated = std::max(all_.allocated, all_.reserved);
  }
  [[nodiscard]] double limit_pct() const {
    Peaks sum{all_.allocated, 0};
    for (const auto& [stream, one] : streams_) sum.reserved += one.allocated;
    return sum.efficiency_pct();
  }

 private:
  std::map<uint32_t, Peaks> streams_;
  Peaks all_;
};

headroom_statistics statistics() {
  headroom_statistics s{};
  s.struct_bytes = sizeof s;
  headroom_get_statistics(0, &s);
  return s;
}

void* stream_handle(uint32_t stream) {
  return stream == 0 ? nullptr : reinterpret_cast<void*>(uintptr_t{0x1000} * stream);
}

struct Options {
  bool has_marks = false;
  bool always_plans = false;
  // A step of a real run takes longer than its requests: so long is waited at each iteration's end
  // while a plan is being made.
  std::chrono::milliseconds step{500};
  std::string plan_out;
  std::string plan_path;
};

// What became of a case; the exit code of its process.
enum class Replayed : uint8_t { unplanned = 0, failed = 1, planned = 2 };

Replayed replay(const Case& what, const Options& options) {
  const headroom_fake_setting setting{1, kDeviceBytes, 2 * kMiB, 4, 0, 0, 1, 0};
  headroom_fake_set_up(&setting);
  headroom_configuration configuration{};
  configuration.struct_bytes = sizeof configuration;
  configuration.driver_path = std::getenv("HEADROOM_CUDA_DRIVER");
  if (configuration.driver_path == nullptr) configuration.driver_path = FAKE_CUDA_PATH;
  if (!options.plan_out.empty()) configuration.plan_out = options.plan_out.c_str();
  if (!options.plan_path.empty()) configuration.plan_path = options.plan_path.c_str();
  if (options.always_plans) configuration.flags = HEADROOM_FLAG_ALWAYS_PLAN;
  if (options.has_marks) headroom_expect_iterations();
  if (headroom_configure(&configuration) != 0) {
    std::fprintf(stderr, "%s\n", headroom_error());
    return Replayed::failed;
  }
  Peer plain("");
  Peer expandable("expandable_segments:True");
  StreamsApart apart;
  runtime::fake::LiveRanges<> live;
  std::vector<void*> pointers(what.trace.buffers.size());
  size_t next = 0;
  size_t serves_from = 0;
  Peaks whole;
  headroom_statistics at_switch{};
  for (size_t i = 0; i < what.trace.events.size(); ++i) {
    if (next < what.iterations.size() && what.iterations[next] == i) {
      if (++next > 1 && options.has_marks) headroom_iteration(0);
      if (serves_from == 0) std::this_thread::sleep_for(options.step);
    }
    const memory::MemoryEvent& event = what.trace.events[i];
    const memory::BufferInfo& info = what.trace.buffers[event.buffer];
    if (info.requested_bytes == 0) continue;
    void*& pointer = pointers[event.buffer];
    if (event.kind == memory::EventKind::alloc) {
      pointer = headroom_malloc(info.requested_bytes, 0, stream_handle(info.stream));
      if (pointer == nullptr) {
        std::fprintf(stderr, "%s: %s\n", what.name.c_str(), headroom_error());
        return Replayed::failed;
      }
      if (!live.add(pointer, info.requested_bytes) ||
          headroom_fake_is_touched(stream_handle(info.stream), reinterpret_cast<uint64_t>(pointer),
                                   info.requested_bytes) != 0) {
        std::fprintf(stderr, "%s: request %zu was given memory in use\n", what.name.c_str(), i);
        return Replayed::failed;
      }
      apart.add(info.stream, info.requested_bytes);
      plain.alloc(event.buffer, info);
      expandable.alloc(event.buffer, info);
      const headroom_statistics s = serves_from == 0 ? statistics() : headroom_statistics{};
      if (serves_from == 0 && s.is_planned != 0) {
        serves_from = next;
        at_switch = s;
        whole = {s.allocated_bytes.peak, s.reserved_bytes.peak};
        headroom_reset_peak_statistics(0);
        plain.begin_since();
        expandable.begin_since();
      }
    } else {
      if (!what.release_delay.empty() && what.release_delay[event.buffer] > 0) {
        void* const other = stream_handle(1 - std::min<uint32_t>(info.stream, 1));
        headroom_fake_work(other, reinterpret_cast<uint64_t>(pointer), info.requested_bytes);
        headroom_record_stream(pointer, other);
      }
      live.remove(pointer);
      headroom_free(pointer, info.requested_bytes, 0, stream_handle(info.stream));
      headroom_fake_advance(1);
      apart.add(info.stream, -info.requested_bytes);
      plain.free(event.buffer);
      expandable.free(event.buffer);
    }
  }
  const headroom_statistics s = statistics();
  Both ours{{s.allocated_bytes.peak, s.reserved_bytes.peak}, {}};
  ours.whole = {std::max(whole.allocated, ours.since.allocated),
                std::max(whole.reserved, ours.since.reserved)};
  if (serves_from == 0) ours.since = {};
  const Both a = plain.result();
  const Both b = expandable.result();
  const auto requests = static_cast<double>(
      s.planned_requests + s.reused_requests + s.general_requests -
      (at_switch.planned_requests + at_switch.reused_requests + at_switch.general_requests));
  const auto share = [&](int64_t headroom_statistics::*part) {
    return requests <= 0 ? 0 : 100 * static_cast<double>(s.*part - at_switch.*part) / requests;
  };
  const std::string name = what.name + (options.plan_path.empty() ? "" : ", again");
  std::printf(
      "\"%s\",%zu,%zu,%zu,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f,%.2f\n",
      name.c_str(), what.trace.buffers.size(), what.iterations.size(), serves_from,
      share(&headroom_statistics::planned_requests), share(&headroom_statistics::reused_requests),
      share(&headroom_statistics::fallback_requests), ours.since.efficiency_pct(),
      a.since.efficiency_pct(), b.since.efficiency_pct(), ours.whole.efficiency_pct(),
      a.whole.efficiency_pct(), b.whole.efficiency_pct(),
      static_cast<double>(ours.since.allocated) / kGiB,
      static_cast<double>(ours.since.reserved) / kGiB,
      static_cast<double>(ours.whole.reserved) / kGiB, apart.limit_pct());
  if (headroom_fake_violations() != 0) {
    std::fprintf(stderr, "%s: %s\n", what.name.c_str(), headroom_fake_first_violation());
    return Replayed::failed;
  }
  if (std::getenv("HEADROOM_REPORT") != nullptr) {
    std::string report(static_cast<size_t>(headroom_report(nullptr, 0)) + 1, '\0');
    headroom_report(report.data(), static_cast<int64_t>(report.size()));
    std::fprintf(stderr, "%s\n", report.c_str());
  }
  return serves_from == 0 ? Replayed::unplanned : Replayed::planned;
}

using memory::generated::TrainingShape;

TrainingShape shape() {
  TrainingShape s;
  s.iterations = 24;
  s.layers = 16;
  s.hidden = 4096;
  s.vocabulary = 32'000;
  s.batch = 2;
  s.sequence = 2048;
  return s;
}

template <typename Change>
Case with(const char* name, Change&& change) {
  TrainingShape s = shape();
  change(s);
  return generated_case(name, s);
}

// Three lengths that take turns: no request is perturbed, and each has its own iteration.
std::vector<Case> generated_cases() {
  std::vector<Case> cases;
  cases.push_back(with("static", [](auto&) {}));
  cases.push_back(with("gradient accumulation", [](auto& s) { s.micro_batches = 4; }));
  cases.push_back(with("recomputation", [](auto& s) { s.recomputes = true; }));
  cases.push_back(with("pipeline", [](auto& s) { s.stages = 4, s.micro_batches = 8; }));
  cases.push_back(with("pipeline, interleaved",
                       [](auto& s) { s.stages = 4, s.micro_batches = 8, s.model_chunks = 2; }));
  cases.push_back(with("pipeline, interleaved, recomputation", [](auto& s) {
    s.stages = 4, s.micro_batches = 8, s.model_chunks = 2, s.recomputes = true;
  }));
  cases.push_back(
      with("buckets on a second stream (ZeRO)", [](auto& s) { s.communicates = true; }));
  cases.push_back(with("offload", [](auto& s) { s.offloads = true; }));
  cases.push_back(with("gradients kept", [](auto& s) { s.keeps_gradients = true; }));
  cases.push_back(with("experts, random routing", [](auto& s) { s.experts = 8, s.layers = 8; }));
  cases.push_back(with("experts, recomputation", [](auto& s) {
    s.experts = 8, s.layers = 8, s.recomputes = true, s.micro_batches = 2;
  }));
  cases.push_back(with("three lengths", [](auto& s) {
    s.shortest_sequence = 1024, s.sequence_step = 512, s.iterations = 48;
  }));
  cases.push_back(
      with("evaluation after each 4th", [](auto& s) { s.evaluate_every = 4, s.iterations = 32; }));
  cases.push_back(perturbed_case(cases[0], 0.05, 1));
  cases.push_back(perturbed_case(cases[2], 0.05, 2));
  return cases;
}

std::vector<Case> recorded_cases(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".pickle") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const auto& path : paths) {
    const auto snapshot = formats::read_torch_snapshot(path.string());
    if (!snapshot || snapshot->devices.empty()) continue;
    const auto requests = memory::recorded_requests(snapshot->devices[0]);
    if (requests.requests.size() < 200) continue;
    cases.push_back(repeated_case(path.stem().string(), requests, 16));
  }
  return cases;
}

std::string recorded_folder() {
  const char* const data = std::getenv("HEADROOM_DATA");
  return std::string(data != nullptr ? data : "../shared/data") + "/allocation_traces/pytorch";
}

// A runtime is for ever, so each case has a process.
Replayed in_child(const Case& what, const Options& options) {
  const pid_t child = fork();
  if (child == 0) {
    const Replayed replayed = replay(what, options);
    headroom_finish();
    std::fflush(stdout);
    std::_Exit(static_cast<int>(replayed));
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return Replayed::failed;
  const int code = WEXITSTATUS(status);
  return code == 0 || code == 2 ? static_cast<Replayed>(code) : Replayed::failed;
}

struct Words {
  Options options;
  bool is_kept = false;
  bool is_unknown = false;
  std::string folder;
  std::string only;  // the case of this name
};

Words read_words(int argc, char** argv) {
  Words words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--data" && i + 1 < argc)
      words.folder = argv[++i];
    else if (word == "--marks")
      words.options.has_marks = true;
    else if (word == "--always")
      words.options.always_plans = true;
    else if (word == "--recorded")
      words.folder = recorded_folder();
    else if (word == "--step-ms" && i + 1 < argc)
      words.options.step = std::chrono::milliseconds(std::atoi(argv[++i]));
    else if (word == "--kept")
      words.is_kept = true;
    else if (word.starts_with("-") || !words.only.empty())
      words.is_unknown = true;
    else
      words.only = word;
  }
  return words;
}

// Once, and a second time with the plan of the first, where it was kept.
Replayed replay_twice(const Case& one, Options options, const std::string& plan) {
  options.plan_out = plan;
  const Replayed first = in_child(one, options);
  if (!std::filesystem::exists(plan)) {
    if (first != Replayed::planned) return first;
    std::fprintf(stderr, "%s: the plan that served was not kept\n", one.name.c_str());
    return Replayed::failed;
  }
  options.plan_path = plan;
  const Replayed again = in_child(one, options);
  std::filesystem::remove(plan);
  if (again == Replayed::unplanned) {
    std::fprintf(stderr, "%s: the plan that was kept did not serve\n", one.name.c_str());
  }
  return first == Replayed::failed || again != Replayed::planned ? Replayed::failed : again;
}

}  // namespace

int main(int argc, char** argv) {
  const Words words = read_words(argc, argv);
  if (words.is_unknown) {
    std::fprintf(stderr,
                 "an unknown word; perf/runtime/efficiency.cpp begins with the known ones\n");
    return kUsage;
  }
  if (!words.folder.empty() && !std::filesystem::is_directory(words.folder)) {
    std::fprintf(stderr, "%s is not there\n", words.folder.c_str());
    return kSkipped;
  }
  std::vector<Case> cases = words.folder.empty() ? generated_cases() : recorded_cases(words.folder);
  std::erase_if(cases,
                [&](const Case& one) { return !words.only.empty() && one.name != words.only; });
  if (cases.empty()) {
    std::fprintf(stderr, "no case to replay\n");
    return kUsage;
  }
  std::printf(
      "case,requests,iterations,serves_from_iteration,planned_pct,reused_pct,fallback_pct,"
      "since_pct,since_torch_pct,since_expandable_pct,whole_pct,whole_torch_pct,"
      "whole_expandable_pct,since_allocated_gib,since_reserved_gib,whole_reserved_gib,streams_"
      "apart_pct\n");
  std::fflush(stdout);
  const std::string plan =
      std::filesystem::temp_directory_path() / ("headroom_efficiency." + std::to_string(getpid()));
  bool has_failed = false;
  bool is_planned = false;
  for (const Case& one : cases) {
    const Replayed replayed =
        words.is_kept ? replay_twice(one, words.options, plan) : in_child(one, words.options);
    has_failed = has_failed || replayed == Replayed::failed;
    is_planned = is_planned || replayed == Replayed::planned;
  }
  if (!is_planned && !has_failed) std::fprintf(stderr, "no plan served in any case\n");
  return has_failed || !is_planned ? 1 : 0;
}
