// How much of what it reserves does the runtime use? Programs of several iterations are replayed
// through libheadroom_torch.so and the fake driver, and beside it through the simulator of
// PyTorch's allocator with default and with expandable segments.
//
//   efficiency                 all cases, each in a process of its own, as CSV
//   efficiency CASE            one
//   efficiency --data FOLDER   recorded steps of that folder (.pickle), repeated, and recordings of
//                              whole runs (.hrec, .hrec.gz), as they went, and where the last two
//                              iterations are alike the last one 16 times more
//   --once                     without that
//   --least PCT                fails where a plan serves and less is used since, or none serves
//   --least-at-end PCT         the same of what is reserved at the end
//   --recorded                 those of $HEADROOM_DATA/allocation_traces/pytorch; 77: not there
//   --marks                    the end of each iteration is marked, as the optimizer's hook does
//   --always                   a plan serves even where best fit is predicted to need less
//   --unordered                the allocator is not told what streams wait for
//   --no-joins                 it is, and makes no stream wait by itself
//   --kept                     each case twice: the second run begins with the first one's plan
//   --step-ms N                how long an iteration takes while a plan is being made (500)
//   --behind N                 the device is up to N ticks behind the host (4; a tick is a
//                              release, or what is done with an event), and two more columns
//                              (shared_streams.h)
//   --waits                    the host waits for the device before each optimizer step, as
//                              programs that look at their gradients do
//
// Efficiency is peak allocated over peak reserved, allocated in bytes rounded up to 512, counted
// from the moment at which the plan serves ("since") and over the whole run ("whole"); for
// PyTorch's allocator over the same stretches of the same events. "At end" is the peak since then
// over what is reserved at the end: at a switch what is alive has bytes of the plan, too, and is
// there twice until it goes. "Streams apart" is what no
// allocator beats that shares nothing between streams. A request that fails ends a case, and so do
// two blocks that share a byte, a block that work on another stream still touches, and a rule of
// the driver that is broken, and one whose iterations are all alike where its last ones map, unmap,
// allocate or wait (calls_in_them): then the exit code is 1. So it is where a plan that served was
// not kept or did not serve the second run (--kept), and where no plan served in any case: then
// little was tried. 2: an unknown word, or no case.
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
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "case.h"
#include "formats/torch_snapshot.h"
#include "memory/caching_allocator.h"
#include "memory/recording/reader.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/live_ranges.h"
#include "shared_streams.h"
#include "text/gzip.h"

namespace {

using namespace headroom;
using namespace headroom::runtime::perf;
using runtime::fake::report;
using runtime::fake::statistics;

constexpr int64_t kDeviceBytes = 192 * kGiB;
constexpr int kSkipped = 77;  // as ctest is told
constexpr int kUsage = 2;
constexpr int64_t kUsuallyBehind = 4;  // ticks

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

void* stream_handle(uint32_t stream) {
  return stream == 0 ? nullptr : reinterpret_cast<void*>(uintptr_t{0x1000} * stream);
}

struct Options {
  bool has_marks = false;
  bool waits = false;
  std::optional<int64_t> behind;  // ticks
  bool always_plans = false;
  bool is_unordered = false;
  bool forbids_joins = false;
  double least_pct = 0;
  double least_at_end_pct = 0;
  // A step of a real run takes longer than its requests: so long is waited at each iteration's end
  // while a plan is being made.
  std::chrono::milliseconds step{500};
  std::string plan_out;
  std::string plan_path;
};

// What became of a case; the exit code of its process.
enum class Replayed : uint8_t { unplanned = 0, failed = 1, planned = 2 };

// Calls that take time of the host or the device, and that a steady iteration makes none of.
// Counted over its last iterations: from the eighth after the switch on (pages that only the time
// before needed are given back until then), or over the second half where no plan serves.
class DriverCalls {
 public:
  static constexpr size_t kFromSwitch = 8;
  explicit DriverCalls(size_t iterations) : from_(iterations / 2) {}
  void switched(size_t iteration) {
    from_ = iteration + kFromSwitch;
    iterations_ = 0;
  }
  void begin_iteration(size_t iteration) {
    if (iteration < from_) return;
    if (iterations_++ == 0) at_start_ = made();
  }
  [[nodiscard]] int64_t iterations() const { return static_cast<int64_t>(iterations_); }
  [[nodiscard]] int64_t count() const { return iterations_ == 0 ? 0 : made() - at_start_; }

 private:
  static int64_t made() {
    int64_t sum = 0;
    for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease",
                                   "cuMemSetAccess", "cuMemAddressReserve", "cuMemAlloc_v2",
                                   "cuMemFree_v2", "cuCtxSynchronize", "cuEventSynchronize"}) {
      sum += headroom_fake_calls(call);
    }
    return sum;
  }
  size_t from_;
  size_t iterations_ = 0;
  int64_t at_start_ = 0;
};

// One case, held against the shadow as it goes.
class Replay {
 public:
  Replay(const Case& what, const Options& options)
      : what_(what),
        options_(options),
        pointers_(what.trace.buffers.size()),
        calls_(what.iterations.size()) {}

  Replayed run() {
    if (!set_up()) return Replayed::failed;
    for (size_t i = 0; i < what_.trace.events.size(); ++i) {
      if (next_ < what_.iterations.size() && what_.iterations[next_] == i) begin_iteration();
      if (options_.waits && std::binary_search(what_.waits.begin(), what_.waits.end(), i)) {
        headroom_fake_advance(behind() + 1);  // the device has done all that was queued
      }
      put_in_order(i);
      const memory::MemoryEvent& event = what_.trace.events[i];
      if (what_.trace.buffers[event.buffer].requested_bytes == 0) continue;
      if (event.kind != memory::EventKind::alloc) {
        release(event.buffer);
      } else if (!allocate(event.buffer, i)) {
        return Replayed::failed;
      }
    }
    say_row();
    if (std::getenv("HEADROOM_REPORT") != nullptr) {
      std::fprintf(stderr, "%s\n", report().c_str());
    }
    return verdict();
  }

 private:
  bool set_up() {
    const headroom_fake_setting setting{1, kDeviceBytes, 2 * kMiB, behind(), 0, 0, 1, 0};
    headroom_fake_set_up(&setting);
    headroom_configuration configuration{};
    configuration.struct_bytes = sizeof configuration;
    configuration.driver_path = std::getenv("HEADROOM_CUDA_DRIVER");
    if (configuration.driver_path == nullptr) configuration.driver_path = FAKE_CUDA_PATH;
    if (!options_.plan_out.empty()) configuration.plan_out = options_.plan_out.c_str();
    if (!options_.plan_path.empty()) configuration.plan_path = options_.plan_path.c_str();
    if (options_.always_plans) configuration.flags = HEADROOM_FLAG_ALWAYS_PLAN;
    if (options_.has_marks) headroom_expect_iterations();
    if (options_.forbids_joins) headroom_forbid_joins();
    if (headroom_configure(&configuration) == 0) return true;
    std::fprintf(stderr, "%s\n", headroom_error());
    return false;
  }

  void begin_iteration() {
    if (++next_ > 1 && options_.has_marks) headroom_iteration(0);
    if (serves_from_ == 0) std::this_thread::sleep_for(options_.step);
    calls_.begin_iteration(next_);
  }

  // What streams are told before the event, as a program does: the allocator is told of an event
  // before it is recorded, and of a wait behind it.
  void put_in_order(size_t event) {
    for (; next_order_ < what_.order.size() && what_.order[next_order_].before <= event;
         ++next_order_) {
      const OrderPoint& point = what_.order[next_order_];
      void* const stream = stream_handle(point.stream);
      if (!point.is_wait) {
        const uint64_t ticket = options_.is_unordered ? 0 : headroom_event_recorded(0, stream);
        events_.push_back({ticket, headroom_fake_record(stream)});
      } else {
        headroom_fake_wait(stream, events_[point.number].due);
        headroom_event_waited(0, stream, events_[point.number].ticket);
      }
    }
  }

  bool allocate(uint32_t buffer, size_t event) {
    const memory::BufferInfo& info = what_.trace.buffers[buffer];
    void* const stream = stream_handle(info.stream);
    void* const pointer = headroom_malloc(info.requested_bytes, 0, stream);
    if (pointer == nullptr) {
      std::fprintf(stderr, "%s: %s\n", what_.name.c_str(), headroom_error());
      return false;
    }
    if (!live_.add(pointer, info.requested_bytes) ||
        headroom_fake_is_touched(stream, reinterpret_cast<uint64_t>(pointer),
                                 info.requested_bytes) != 0) {
      std::fprintf(stderr, "%s: request %zu was given memory in use\n", what_.name.c_str(), event);
      return false;
    }
    pointers_[buffer] = pointer;
    if (!what_.order.empty()) touch(buffer);
    apart_.add(info.stream, info.requested_bytes);
    if (options_.behind) shared_.alloc(info.stream, round_up(info.requested_bytes, 512));
    plain_.alloc(buffer, info);
    expandable_.alloc(buffer, info);
    if (serves_from_ == 0 && statistics().is_planned != 0) note_switch();
    return true;
  }

  // A kernel of the block's own stream, which is what order between streams is about.
  void touch(uint32_t buffer) {
    const memory::BufferInfo& info = what_.trace.buffers[buffer];
    headroom_fake_work(stream_handle(info.stream), reinterpret_cast<uint64_t>(pointers_[buffer]),
                       info.requested_bytes);
  }

  [[nodiscard]] int64_t behind() const { return options_.behind.value_or(kUsuallyBehind); }

  void note_switch() {
    serves_from_ = next_;
    at_switch_ = statistics();
    whole_ = {at_switch_.allocated_bytes.peak, at_switch_.reserved_bytes.peak};
    headroom_reset_peak_statistics(0);
    plain_.begin_since();
    expandable_.begin_since();
    calls_.switched(next_);
  }

  void release(uint32_t buffer) {
    const memory::BufferInfo& info = what_.trace.buffers[buffer];
    void* const pointer = pointers_[buffer];
    void* const stream = stream_handle(info.stream);
    const int64_t rounded = round_up(info.requested_bytes, 512);
    const bool has_uses = !what_.release_delay.empty() && what_.release_delay[buffer] > 0;
    if (has_uses) {
      void* const other = stream_handle(1 - std::min<uint32_t>(info.stream, 1));
      headroom_fake_work(other, reinterpret_cast<uint64_t>(pointer), info.requested_bytes);
      headroom_record_stream(pointer, other);
      if (options_.behind) shared_.release(info.stream, stream, rounded, other);
    } else if (options_.behind) {
      shared_.release(info.stream, stream, rounded);
    }
    if (!what_.order.empty()) touch(buffer);
    live_.remove(pointer);
    headroom_free(pointer, info.requested_bytes, 0, stream);
    headroom_fake_advance(1);
    apart_.add(info.stream, -info.requested_bytes);
    plain_.free(buffer);
    expandable_.free(buffer);
  }

  void say_row() const {
    const headroom_statistics s = statistics();
    const auto came = [](const headroom_statistics& t) {
      return static_cast<double>(t.planned_requests + t.reused_requests + t.general_requests);
    };
    const double requests = came(s) - came(at_switch_);
    const auto share = [&](int64_t headroom_statistics::*part) {
      return requests <= 0 ? 0 : 100 * static_cast<double>(s.*part - at_switch_.*part) / requests;
    };
    Both ours{{s.allocated_bytes.peak, s.reserved_bytes.peak}, {}};
    ours.whole = {std::max(whole_.allocated, ours.since.allocated),
                  std::max(whole_.reserved, ours.since.reserved)};
    if (serves_from_ == 0) ours.since = {};
    const Both a = plain_.result();
    const Both b = expandable_.result();
    const std::string name = what_.name + (options_.plan_path.empty() ? "" : ", again");
    std::printf("\"%s\",%zu,%zu,%zu,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,", name.c_str(),
                what_.trace.buffers.size(), what_.iterations.size(), serves_from_,
                share(&headroom_statistics::planned_requests),
                share(&headroom_statistics::reused_requests),
                share(&headroom_statistics::fallback_requests), ours.since.efficiency_pct(),
                a.since.efficiency_pct(), b.since.efficiency_pct(), ours.whole.efficiency_pct(),
                a.whole.efficiency_pct(), b.whole.efficiency_pct());
    const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGiB; };
    std::printf("%.3f,%.3f,%.3f,%.2f,%.2f,%lld,%lld", gib(ours.since.allocated),
                gib(ours.since.reserved), gib(ours.whole.reserved), at_end_pct(),
                apart_.limit_pct(), static_cast<long long>(calls_.iterations()),
                static_cast<long long>(calls_.count()));
    if (options_.behind) {
      const double events = static_cast<double>(what_.trace.events.size()) /
                            static_cast<double>(what_.iterations.size());
      const Peaks shared{ours.whole.allocated, shared_.bytes()};
      std::printf(",%lld,%.2f,%.2f", static_cast<long long>(behind()),
                  100 * shared_.mean_events_behind() / events, shared.efficiency_pct());
    }
    std::printf("\n");
  }

  [[nodiscard]] Replayed verdict() const {
    if (headroom_fake_violations() != 0) {
      std::fprintf(stderr, "%s: %s\n", what_.name.c_str(), headroom_fake_first_violation());
      return Replayed::failed;
    }
    if (what_.is_steady && calls_.count() != 0) {
      std::fprintf(stderr, "%s: %lld calls of the driver in %lld steady iterations\n",
                   what_.name.c_str(), static_cast<long long>(calls_.count()),
                   static_cast<long long>(calls_.iterations()));
      return Replayed::failed;
    }
    const double since_pct =
        Peaks{statistics().allocated_bytes.peak, statistics().reserved_bytes.peak}.efficiency_pct();
    if (options_.least_pct > 0 && (serves_from_ == 0 || since_pct < options_.least_pct)) {
      std::fprintf(stderr, "%s: less than %.2f %% used since a plan serves\n", what_.name.c_str(),
                   options_.least_pct);
      return Replayed::failed;
    }
    if (options_.least_at_end_pct > 0 && at_end_pct() < options_.least_at_end_pct) {
      std::fprintf(stderr, "%s: less than %.2f %% used at the end\n", what_.name.c_str(),
                   options_.least_at_end_pct);
      return Replayed::failed;
    }
    return serves_from_ == 0 ? Replayed::unplanned : Replayed::planned;
  }
  [[nodiscard]] double at_end_pct() const {
    const headroom_statistics s = statistics();
    if (serves_from_ == 0) return 0;
    return Peaks{s.allocated_bytes.peak, s.reserved_bytes.current}.efficiency_pct();
  }

  const Case& what_;
  const Options& options_;
  Peer plain_{""};
  Peer expandable_{"expandable_segments:True"};
  StreamsApart apart_;
  SharedStreams shared_;
  runtime::fake::LiveRanges<> live_;
  std::vector<void*> pointers_;  // by buffer
  DriverCalls calls_;
  struct Event {
    uint64_t ticket = 0;
    int64_t due = 0;
  };
  std::vector<Event> events_;
  size_t next_order_ = 0;
  size_t next_ = 0;         // iteration
  size_t serves_from_ = 0;  // iteration, counted from 1; 0: no plan serves
  Peaks whole_;             // until the switch
  headroom_statistics at_switch_{};
};

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
  Case made = generated_case(name, s);
  made.is_steady = s.experts == 0 && s.sequence_step == 0 && s.evaluate_every == 0;
  return made;
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
  cases.push_back(merged_case("a loader's thread on the same stream", cases[0],
                              loader_case(cases[0].iterations.size()), 3));
  cases.push_back(merged_case("two trainings on one stream", cases[0], cases[2], 4));
  return cases;
}

constexpr Bytes kMostRecording{4 * kGiB};

bool is_recording(const std::filesystem::path& path) {
  return path.string().ends_with(".hrec") || path.string().ends_with(".hrec.gz");
}

std::optional<Case> read_recording_case(const std::filesystem::path& path, size_t repeats) {
  const auto bytes = text::read_input(path.string(), kMostRecording);
  if (!bytes) return std::nullopt;
  const auto recording = memory::parse_recording(*bytes, path.string());
  if (!recording) return std::nullopt;
  const std::string file = path.filename().string();
  return recording_case(file.substr(0, file.find('.')), *recording, repeats);
}

std::vector<Case> recorded_cases(const std::string& folder, size_t repeats) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".pickle" || is_recording(entry.path())) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const auto& path : paths) {
    if (is_recording(path)) {
      if (auto made = read_recording_case(path, repeats)) cases.push_back(*std::move(made));
      continue;
    }
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
    const Replayed replayed = Replay(what, options).run();
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
  size_t repeats = 16;
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
    else if (word == "--no-joins")
      words.options.forbids_joins = true;
    else if (word == "--unordered")
      words.options.is_unordered = true;
    else if (word == "--recorded")
      words.folder = recorded_folder();
    else if (word == "--step-ms" && i + 1 < argc)
      words.options.step = std::chrono::milliseconds(std::atoi(argv[++i]));
    else if (word == "--once")
      words.repeats = 0;
    else if (word == "--least" && i + 1 < argc)
      words.options.least_pct = std::atof(argv[++i]);
    else if (word == "--least-at-end" && i + 1 < argc)
      words.options.least_at_end_pct = std::atof(argv[++i]);
    else if (word == "--behind" && i + 1 < argc)
      words.options.behind = std::atoll(argv[++i]);
    else if (word == "--waits")
      words.options.waits = true;
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
  std::vector<Case> cases =
      words.folder.empty() ? generated_cases() : recorded_cases(words.folder, words.repeats);
  std::erase_if(cases,
                [&](const Case& one) { return !words.only.empty() && one.name != words.only; });
  if (cases.empty()) {
    std::fprintf(stderr, "no case to replay\n");
    return kUsage;
  }
  std::printf(
      "case,requests,iterations,serves_from_iteration,planned_pct,reused_pct,fallback_pct,"
      "since_pct,since_torch_pct,since_expandable_pct,whole_pct,whole_torch_pct,"
      "whole_expandable_pct,since_allocated_gib,since_reserved_gib,whole_reserved_gib,at_end_pct,"
      "streams_apart_pct,last_iterations,calls_in_them%s\n",
      words.options.behind ? ",behind_ticks,behind_pct_of_iteration,streams_shared_pct" : "");
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
