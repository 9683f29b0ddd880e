// The share of non-GEMM work in models as they run here: `headroom bench nongemm`; and the runner
// and the records of `headroom bench decode`, whose settings have a context (measured_decode.h).
//
// The paper's experiment (NonGEMM Bench, arXiv 2404.11788) on this machine, with random weights: a
// setting is a model in an engine with a batch, a type, a quantization and a fusion.
// measure_nongemm() has the Python runner (python/headroom/nongemm_probe.py) run models in their
// settings and hands on each record as it comes; what a profile says is read by the caller's
// reader, since that is another question's work. answer_nongemm() makes rows of records, and is
// pure. A model too big for the machine has two records with few layers, of which the whole is
// composed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "bench/nongemm_models.h"
#include "text/json.h"
#include "timing/calibration.h"

namespace headroom::bench {

struct NongemmSetting {
  std::string model;     // "gpt2"
  std::string engine;    // "pytorch" (eager), "compiled", "graphed" (CUDA) or "onnxruntime"
  std::string phase;     // "forward" or "decode"
  int64_t batch = 1;     //
  std::string dtype;     // "fp32", "bf16", "fp16"
  std::string quantize;  // "none", "int8" or "int4" (of weights alone)
  std::string fusion;    // "none", "basic", "all" or "all-NAME": without that optimizer
  // Of `bench decode`: tokens in the cache of each sequence, the new one among them.
  std::optional<int64_t> context{};

  // "gpt2/pytorch/forward/b1/fp32/none/none", and "/c512": unique among the settings of a run.
  [[nodiscard]] std::string id() const;
  friend bool operator==(const NongemmSetting&, const NongemmSetting&) = default;
};

// Milliseconds of one run by group, in the order of the rules.
using GroupMilliseconds = std::vector<std::pair<std::string, double>>;

// Where a run's time went.
struct TimeAccount {
  double wall_ms = 0;
  double idle_ms = 0;              // no operator ran: Python, or waiting
  GroupMilliseconds groups;        // an operator's own time, or its kernels'
  GroupMilliseconds paper_groups;  // NonGEMM Bench's formula and names, with "missed"
};

// The layers that a run has beyond another one of the same model (ops/added_part.h).
struct AddedLayers : TimeAccount {
  // Of two periods in a row, whose mean they are, by how much these differ; nothing: it is one.
  std::optional<double> apart_ms{};
};

// What a profile says, of one run.
struct ProfiledRun : TimeAccount {
  std::optional<AddedLayers> added{};
};
// `capture`: a trace of the capture of the graphs that the run launches, or ""; `shorter`: the
// trace of the run of fewer layers that this one's are held against, or "".
using ProfileReader = std::function<Result<ProfiledRun>(
    const std::string& file, const std::string& capture, const std::string& shorter)>;

enum class NongemmStatus : uint8_t { measured, refused, failed };
[[nodiscard]] std::string_view name_of(NongemmStatus status);

// Whether it is a fusion that can be asked for.
[[nodiscard]] bool is_nongemm_fusion(std::string_view word);

// Of a setting with a context.
struct DecodeFacts {
  double quickest_seconds = 0;         // of the single runs, less what other programs took
  double profiled_waited_seconds = 0;  // of the profiled run, what other programs took
  Bytes cache;
  // The most that the machine was seen to do, before these runs.
  double peak_bytes_per_second = 0;
  double peak_flops_per_second = 0;
  std::optional<double> joules{};  // of the processor packages, a step; nothing: not readable
  // The median of the runs, less what other programs took of the cores; nothing: not known.
  std::optional<double> undisturbed_seconds{};
};

// One measurement, or why there is none. `reason` is the engine's.
struct NongemmRecord {
  NongemmSetting setting;
  NongemmStatus status = NongemmStatus::refused;
  std::string reason;
  std::optional<int64_t> layers;           // nothing: the whole model
  std::optional<int64_t> layers_of_model;  // where it is one stack
  int64_t parameters = 0;                  // of what was run
  std::optional<int64_t> model_parameters;
  double seconds = 0;                 // the median of single runs
  std::optional<double> uncertainty;  // half of the median's interval, as a part of it
  int64_t samples = 0;
  std::string trace;  // of the quickest run under the profiler: its file, beside the records
  // Composed of several: of each stretch what it takes undisturbed (typical_run.py). Its profile is
  // the record's; nothing: that of `trace` is.
  std::optional<std::string> typical_trace{};
  std::optional<std::string> capture_trace{};  // of an engine that launches graphs
  int64_t profiled_runs = 1;                   // of which it is composed
  double profiled_seconds = 0;                 // of the quickest run under the profiler
  ProfiledRun profile;
  std::optional<double> joules{};  // a run, where the machine says
  std::optional<DecodeFacts> decode;
  std::vector<std::string> notes;
};

// The records of one machine, as they are kept: JSON lines (docs/formats/nongemm.md).
struct NongemmRecords {
  std::optional<timing::Machine> machine;  // of the first line; none in an empty file
  std::vector<NongemmRecord> records;      // a later one of the same setting and layers replaces it
};
Result<NongemmRecords> parse_nongemm_records(std::string_view text, const std::string& file);
[[nodiscard]] text::Json nongemm_header(const timing::Machine& machine);
[[nodiscard]] text::Json nongemm_setting_json(const NongemmSetting& setting);
[[nodiscard]] text::Json nongemm_record_json(const NongemmRecord& record);
// What the runner said of one setting; the profile is still to be read.
Result<NongemmRecord> read_runner_record(const text::JsonView& view,
                                         const std::map<std::string, NongemmSetting>& by_id);

// A model's settings, to be run.
struct NongemmPart {
  NongemmModel model;
  std::vector<NongemmSetting> settings;
};

struct NongemmRun {
  std::vector<NongemmPart> parts;
  std::string on = "cpu";
  double seconds = 20;       // of runs, for each setting
  int64_t threads = 0;       // of the CPU; 0: as many as PyTorch takes
  bool is_composed = false;  // of few layers, even where the whole would fit
  // Of settings with a context: with how many layers; nothing: as many as fit.
  std::optional<int64_t> layers;
  std::string folder;  // where traces go
  std::function<Result<void>(const timing::Machine&)> on_machine;
  std::function<Result<void>(const NongemmRecord&)> on_record;
  ProfileReader read_profile;
};
// Every setting gets a record: what a model's process died of is the reason of those that it left.
// Errors: what on_machine and on_record return, and unavailable without Python or the device.
Result<void> measure_nongemm(const NongemmRun& run);

// A row of the answer: one setting, measured whole or composed of parts.
struct NongemmRow {
  NongemmSetting setting;
  Provenance provenance = Provenance::measured;
  double seconds = 0;
  std::optional<double> seconds_half;    // of its interval; nothing where there was one run only
  std::vector<int64_t> measured_layers;  // of which it is composed; empty: measured whole
  std::optional<int64_t> layers_of_model;
  std::optional<int64_t> parameters;
  GroupMilliseconds groups;
  double gemm_pct = 0;       // shares of what operators took, by our groups
  double attention_pct = 0;  //
  double nongemm_pct = 0;    // the rest
  // By the paper's formula, which counts fused attention as GEMM; nothing where its lists of names
  // miss too much of the time.
  std::optional<double> paper_nongemm_pct;
  double covered_pct = 0;          // of the profiled wall time, by operators
  std::optional<double> joules{};  // a run
  double profiler_cost_pct = 0;    // how much longer a profiled run takes
  std::vector<std::string> notes;  //
};

// How the rows compare with what the paper reports.
struct NongemmEffects {
  int64_t compared = 0;  // rows with neither quantization nor fusion, of the paper's models
  int64_t below = 0, within = 0, above = 0;  // the paper's range of shares
  int64_t int8_pairs = 0, int8_raised = 0;
  int64_t int4_pairs = 0, int4_raised = 0;  // weights alone, which the paper has not
  int64_t fusion_pairs = 0, fusion_lowered = 0;
  int64_t fused_below = 0, fused_within = 0, fused_above = 0;  // what is left, beside the paper's
  // How many times as quick: the median of the pairs; 0: there are none.
  double int8_speedup = 0, int4_speedup = 0, fusion_speedup = 0;
  std::vector<std::string> exceptions;  // a sentence each
};
// The abstract of arXiv 2404.11788v5, percent of the latency.
inline constexpr double kPaperLowPct = 11.3, kPaperHighPct = 73.6;
inline constexpr double kPaperFusedLowPct = 15, kPaperFusedHighPct = 48;

struct NongemmAnswer {
  timing::Machine machine;
  std::vector<NongemmRow> rows;
  std::vector<NongemmRecord> refused;  // and failed
  NongemmEffects effects;
  std::vector<std::string> notes;
};
NongemmAnswer answer_nongemm(const NongemmRecords& records);

// Several machines side by side: of each setting a row of each, where it has one.
struct NongemmMerged {
  struct Machine {
    std::string file;
    timing::Machine machine;
    size_t not_measured = 0;
  };
  struct Row {
    NongemmSetting setting;
    std::vector<std::optional<NongemmRow>> by_machine;  // as many as machines
  };
  std::vector<Machine> machines;
  std::vector<Row> rows;
};
struct NamedRecords {
  std::string file;
  NongemmRecords records;
};
NongemmMerged merge_nongemm(const std::vector<NamedRecords>& files);

}  // namespace headroom::bench
