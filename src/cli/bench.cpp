#include <cmath>

#include "bench/decode.h"
#include "cli/bench_device.h"
#include "cli/bench_nongemm.h"
#include "cli/deliver.h"
#include "cli/machine.h"
#include "cli/verb.h"
#include "model/builtin.h"
#include "report/bench_json.h"
#include "report/bench_text.h"
#include "text/csv.h"
#include "text/gzip.h"

namespace headroom::cli {
namespace {

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

}  // namespace

Result<std::vector<int64_t>> batches_of(std::string_view words) {
  std::vector<int64_t> batches;
  while (!words.empty() && batches.size() <= bench::kMostBatches) {
    const size_t comma = std::min(words.find(','), words.size());
    HEADROOM_ASSIGN(const int64_t batch, number_of<int64_t>(words.substr(0, comma), "batches", 1));
    batches.push_back(batch);
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return batches;
}

namespace {

// A CSV file with the columns batch and itl_ms, and, where it has one, running_mean: what was
// really in flight.
Result<std::vector<bench::MeasuredStep>> points_of(const std::string& path) {
  constexpr Bytes kMostBytes{kMiB};
  HEADROOM_ASSIGN(const std::string content, text::read_input(path, kMostBytes));
  HEADROOM_ASSIGN(text::CsvReader reader, text::CsvReader::open(content, path));
  HEADROOM_ASSIGN(const size_t batch, reader.column("batch"));
  HEADROOM_ASSIGN(const size_t itl, reader.column("itl_ms"));
  const std::optional<size_t> running = reader.find_column("running_mean");
  std::vector<bench::MeasuredStep> points;
  while (true) {
    HEADROOM_ASSIGN(const bool has_row, reader.next());
    if (!has_row) return points;
    bench::MeasuredStep point;
    HEADROOM_ASSIGN(point.batch, reader.get_int(batch, 1, bench::kMostBatch));
    if (running && !reader.field(*running).empty()) {
      HEADROOM_ASSIGN(const double mean, reader.get_double(*running, 0.5, 65536));
      point.batch = std::llround(mean);
    }
    HEADROOM_ASSIGN(const double milliseconds, reader.get_double(itl, 1e-6, 1e9));
    point.seconds = milliseconds * 1e-3;
    points.push_back(point);
    if (points.size() > bench::kMostBatches) return reader.error("more than 64 points");
  }
}

Result<bench::DecodeQuestion> question_of(const Words& words,
                                          const device::DeviceCatalogue& catalogue) {
  bench::DecodeQuestion question;
  const std::string device = words.has("device") ? words.value("device") : "auto";
  HEADROOM_ASSIGN(question.device, catalogue.find(device));
  if (words.has("context")) {
    HEADROOM_ASSIGN(question.context, number_of<int64_t>(words.value("context"), "context", 1));
  }
  if (words.has("batches")) {
    HEADROOM_ASSIGN(question.batches, batches_of(words.value("batches")));
  }
  if (words.has("points")) {
    HEADROOM_ASSIGN(question.points, points_of(words.value("points")));
  }
  if (words.has("dtype")) {
    const std::string name = words.value("dtype");
    const std::optional<op::DType> dtype = op::parse_dtype(name);
    if (dtype != op::DType::bf16 && dtype != op::DType::f16 && dtype != op::DType::f32) {
      return usage("'" + name.substr(0, 80) + "' is not a type that --dtype takes",
                   "bfloat16, float16 or float32");
    }
    question.weights = *dtype;
  }
  return question;
}

Result<int> run_bench_decode(const Words& words, const Console& console) {
  if (words.operands.size() != 2) return usage("of which model?", "`headroom models` lists some");
  if (!words.has("predict")) {
    return Error{ErrorCode::unavailable,
                 "measuring decode steps on this machine is not built yet",
                 {},
                 "--predict says what they would take, on any device that is known"};
  }
  HEADROOM_ASSIGN(const Machines machines, load_machines(words));
  HEADROOM_ASSIGN(bench::DecodeQuestion question, question_of(words, machines.catalogue));
  HEADROOM_ASSIGN(const model::ResolvedModel model, model::resolve_model(words.operands[1]));
  question.model = model.name;
  HEADROOM_ASSIGN(const bench::DecodeAnswer answer,
                  bench::predict_decode(model.view(), question, machines.timing));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::decode_text(answer, terminal);
  };
  forms.json = [&] { return report::decode_json(answer); };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.largest_batch > 0 ? kExitYes : kExitNotPlainYes;
}

Result<int> run_bench(const Words& words, const Console& console) {
  const std::string what = words.operands.empty() ? "" : words.operands.front();
  if (words.has("html") && what != "nongemm" && what != "merge") {
    return usage("--html is for bench nongemm and bench merge", "--json, or leave it out");
  }
  if (what == "device") return run_bench_device(words, console);
  if (what == "decode") return run_bench_decode(words, console);
  if (what == "nongemm") return run_bench_nongemm(words, console);
  if (what == "merge") return run_bench_merge(words, console);
  return usage("what is to be measured?",
               "headroom bench device, headroom bench nongemm, or headroom bench decode MODEL "
               "--device NAME --predict");
}

}  // namespace

Verb bench_verb() {
  Verb verb;
  verb.name = "bench";
  verb.summary =
      "what operators cost on this machine, and models' non-GEMM work; decode steps by batch";
  verb.operands = "device | nongemm [MODEL...] | merge FILE FILE | decode MODEL";
  verb.most_operands = 64;
  verb.examples = {
      {"headroom bench device --quick",
       "this machine's operators in a minute, as laws that --calibration takes"},
      {"headroom bench nongemm --quick",
       "the paper's 17 models with random weights: how much of their time is no GEMM"},
      {"headroom bench nongemm gpt2 Qwen/Qwen3-0.6B --batches 1,8",
       "single models; yours too: the path of a config.json, or FILE.py:FUNCTION"},
      {"headroom bench decode facebook/opt-1.3b --device h100-sxm-64gb --predict --context 330",
       "the memory-gap paper's experiment, without its machine"},
      {"headroom bench decode meta-llama/Llama-2-7b-hf --device a100-sxm-80gb --predict --json",
       "every figure with its interval and where it comes from"},
  };
  verb.flags = {
      {"on", "DEVICE", "to measure on: cpu (as without it), cuda or cuda:N"},
      {"quick", "",
       "bench device: in one minute, without it four; bench nongemm: batch 1, few runs"},
      {"seconds", "N", "bench device: for about so long; bench nongemm: for each setting"},
      {"models", "NAME,...", "bench nongemm: also paper (as without it), today or all"},
      {"engine", "NAME,...", "bench nongemm: pytorch, onnxruntime; without it both"},
      {"fuse", "none,basic,all", "bench nongemm: ONNX Runtime's levels; all, quickly none,all"},
      {"quantize", "none,int8", "bench nongemm: dynamic int8 of the engine; without it both"},
      {"decode", "", "bench nongemm: also a decode step of language models"},
      {"threads", "N", "bench nongemm: of the CPU; as many as PyTorch takes"},
      {"composed", "", "bench nongemm: the whole from few layers, even where it fits"},
      {"keep", "FOLDER", "bench nongemm: records and traces, to go on with; headroom-nongemm"},
      {"results", "FILE", "bench nongemm: show the records of a run; nothing is measured"},
      {"save-calibration", "FILE", "bench device: where it is kept; NAME.calibration.json"},
      kCalibrationFlag,
      {"device", "NAME", "a GPU that `headroom devices` lists; without it that of this machine"},
      {"predict", "", "by laws fitted to published measurements (docs/formats/timing.md)"},
      {"context", "TOKENS", "in the cache of each sequence; 512"},
      {"batches", "N,N,...", "items of a batch, sequences that decode together; powers of two"},
      {"points", "FILE.csv", "measured steps that correct the rest: batch,itl_ms; two at least"},
      {"dtype", "TYPE", "of weights and cache: bfloat16, float16 or float32"},
      kJsonFlag,
      kHtmlFlag,
      kOutputFlag,
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.run = run_bench;
  return verb;
}

}  // namespace headroom::cli
