#include "batch/batch.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/version.h"
#include "batch/deploy.h"
#include "cli/batch_live.h"
#include "cli/batch_watch.h"
#include "cli/deliver.h"
#include "cli/machine.h"
#include "cli/verb.h"
#include "formats/serving_results.h"
#include "model/builtin.h"
#include "report/batch_html.h"
#include "report/batch_json.h"
#include "report/batch_text.h"

namespace headroom::cli {
namespace {

// The number of a flag, or nothing where the flag is not there.
template <typename T>
Result<std::optional<T>> number(const Words& words, const std::string& flag) {
  if (!words.has(flag)) return std::optional<T>();
  HEADROOM_ASSIGN(const T value, number_of<T>(words.value(flag), flag));
  return std::optional<T>(value);
}

Result<void> read_numbers(const Words& words, batch::BatchQuestion& question) {
  HEADROOM_ASSIGN(const auto efficiency, number<double>(words, "min-efficiency"));
  question.min_efficiency = efficiency.value_or(question.min_efficiency);
  HEADROOM_ASSIGN(const auto input, number<double>(words, "input-tokens"));
  question.input_tokens = input.value_or(question.input_tokens);
  HEADROOM_ASSIGN(const auto output, number<double>(words, "output-tokens"));
  question.output_tokens = output.value_or(question.output_tokens);
  HEADROOM_ASSIGN(const auto variation, number<double>(words, "length-variation"));
  question.length_variation = variation.value_or(question.length_variation);
  HEADROOM_ASSIGN(question.host_gap, number<double>(words, "host-gap"));
  HEADROOM_ASSIGN(const auto replicas, number<int>(words, "most-replicas"));
  question.most_replicas = replicas.value_or(question.most_replicas);
  return {};
}

// "2,4,recorded".
Result<std::vector<double>> rates_of(std::string_view words, const formats::RequestTimes& times) {
  std::vector<double> rates;
  while (true) {
    const size_t comma = std::min(words.find(','), words.size());
    const std::string_view word = words.substr(0, comma);
    if (word == "recorded") {
      if (times.arrived_seconds.empty()) {
        return Error{ErrorCode::usage, "no times of requests were given", "--rate recorded",
                     times.without_times.empty()
                         ? "--requests FILE, a trace that says when they came"
                         : times.without_times};
      }
      rates.push_back(batch::recorded_rate(times));
    } else {
      HEADROOM_ASSIGN(const double rate, number_of<double>(word, "rate"));
      rates.push_back(rate);
    }
    if (comma == words.size()) return rates;
    words.remove_prefix(comma + 1);
  }
}

Result<void> read_open_load(const Words& words, batch::OpenLoadQuestion& open) {
  open.is_search = words.value("rate") == "search";
  if (open.is_search && !words.has("url")) {
    return Error{ErrorCode::usage, "it is for a running server", "--rate search",
                 "--url http://localhost:8000; of a simulated one --slo with percentiles tells the "
                 "highest rate"};
  }
  if (words.has("rate") && !open.is_search) {
    HEADROOM_ASSIGN(open.rates, rates_of(words.value("rate"), open.times));
  }
  if (!words.has("watch")) {
    HEADROOM_ASSIGN(open.limit, number<int64_t>(words, "limit"));
  }
  HEADROOM_ASSIGN(open.attain, number<double>(words, "attain"));
  HEADROOM_ASSIGN(open.prefill_tokens_per_second, number<double>(words, "prefill-rate"));
  HEADROOM_ASSIGN(const auto tokens, number<int64_t>(words, "max-num-batched-tokens"));
  open.max_num_batched_tokens = tokens.value_or(open.max_num_batched_tokens);
  HEADROOM_ASSIGN(const auto seed, number<uint64_t>(words, "seed"));
  open.seed = seed.value_or(open.seed);
  if (words.has("rate") && !open.is_recorded()) {
    HEADROOM_ASSIGN(open.window_seconds, number<double>(words, "window"));
    constexpr double kUsualWindow = 30;
    if (words.has("url") && !open.window_seconds) open.window_seconds = kUsualWindow;
    if (open.window_seconds && !(*open.window_seconds >= 0.5 && *open.window_seconds <= 3600)) {
      return Error{ErrorCode::usage, "seconds from 0.5 to 3600", "--window", {}};
    }
  }
  open.has_chunked_prefill = !words.has("no-chunked-prefill");
  if (open.is_asked()) return {};
  for (const std::string_view flag :
       {"limit", "attain", "prefill-rate", "max-num-batched-tokens", "no-chunked-prefill"}) {
    if (!words.has(flag) || (flag == "limit" && words.has("watch"))) continue;
    return Error{ErrorCode::usage, "it is for requests that come by themselves",
                 "--" + std::string(flag),
                 flag == "limit" ? "--rate 4, --slo ttft_p95=500ms, or --watch URL"
                                 : "--rate 4, or --slo ttft_p95=500ms"};
  }
  return {};
}

// "int8", "fp8" or "int4", as bytes of an element.
Result<std::optional<double>> element_bytes(const Words& words, const std::string& flag) {
  if (!words.has(flag)) return std::optional<double>();
  const std::string name = words.value(flag);
  if (name == "fp8" || name == "int8") return std::optional(1.0);
  const bool is_of_weights = flag == "quantize";
  if (name == "int4") return std::optional(is_of_weights ? timing::kInt4Bytes : 0.5);
  if (name == "fp4" && is_of_weights) return std::optional(0.5);
  return Error{ErrorCode::usage, "'" + name.substr(0, 80) + "' is not a type that it takes",
               "--" + flag,
               flag == "quantize" ? "fp8, int8, fp4 or int4; without it that of --dtype"
                                  : "fp8, int8 or int4; without it that of --dtype"};
}

Result<void> read_variant(const Words& words, batch::BatchQuestion& question) {
  for (const std::string_view flag : {"kv-dtype", "quantize"}) {
    if (!words.has(flag) || !words.operands.empty()) continue;
    return Error{ErrorCode::usage, "it is for what is predicted, not for what was measured",
                 "--" + std::string(flag), "MODEL and --device"};
  }
  HEADROOM_ASSIGN(question.variant.cache_element_bytes, element_bytes(words, "kv-dtype"));
  HEADROOM_ASSIGN(question.variant.weight_element_bytes, element_bytes(words, "quantize"));
  // Weights of 8 bits and fp4 come with activations that are alike; int4 alone is unpacked to
  // --dtype.
  if (words.value("quantize") == "fp8") question.variant.product_rate = device::Rate::fp8;
  if (words.value("quantize") == "int8") question.variant.product_rate = device::Rate::int8;
  if (words.value("quantize") == "fp4") question.variant.product_rate = device::Rate::fp4;
  question.variant.host_share = question.host_gap;
  HEADROOM_ASSIGN(const auto tensor, number<int64_t>(words, "tp"));
  question.variant.tensor_parallel = tensor.value_or(1);
  HEADROOM_ASSIGN(const auto pipeline, number<int64_t>(words, "pp"));
  question.variant.pipeline_parallel = pipeline.value_or(1);
  return {};
}

Result<batch::BatchQuestion> question_of(const Words& words, const Machines& machines) {
  batch::BatchQuestion question;
  if (words.has("points")) {
    question.points_file = words.value("points");
    HEADROOM_ASSIGN(auto results, formats::read_serving_results(question.points_file));
    question.points = std::move(results.points);
    question.points_left_out = std::move(results.left_out);
    question.points_partial = results.is_partial;
  }
  if (words.has("requests")) {
    question.requests_file = words.value("requests");
    HEADROOM_ASSIGN(auto trace, formats::read_request_lengths(question.requests_file));
    question.requests = std::move(trace.requests);
    question.open_load.times = std::move(trace.times);
  }
  const bool is_measured = words.has("points") || words.has("url");
  if (words.has("device") || (!is_measured && !words.operands.empty())) {
    HEADROOM_ASSIGN(question.device, machines.catalogue.find(machines.device_for(words)));
    question.other_devices = machines.catalogue.devices();
  }
  if (words.has("slo")) {
    HEADROOM_ASSIGN(batch::Slo slo, batch::parse_slo(words.value("slo")));
    question.slo = slo.itl;
    question.open_load.targets = std::move(slo.latencies);
  }
  if (words.has("dtype")) {
    const std::string name = words.value("dtype");
    const std::optional<op::DType> dtype = op::parse_dtype(name);
    if (dtype != op::DType::bf16 && dtype != op::DType::f16 && dtype != op::DType::f32) {
      return Error{ErrorCode::usage,
                   "'" + name.substr(0, 80) + "' is not a type that --dtype takes",
                   {},
                   "bfloat16, float16 or float32"};
    }
    question.weights = *dtype;
  }
  if (words.has("engine")) {
    const std::string name = words.value("engine");
    const auto engine = engines::parse_serving_engine(name);
    if (!engine) {
      return Error{ErrorCode::usage,
                   "'" + name.substr(0, 80) + "' is no engine whose commands are known", "--engine",
                   "vllm, sglang, tensorrt-llm or llama.cpp"};
    }
    question.engine = *engine;
  }
  if (words.has("price")) {
    HEADROOM_ASSIGN(question.price, batch::parse_price(words.value("price")));
  }
  HEADROOM_TRY(read_numbers(words, question));
  HEADROOM_TRY(read_variant(words, question));
  HEADROOM_TRY(read_open_load(words, question.open_load));
  return question;
}

struct Outcome {
  batch::BatchAnswer answer;
  std::optional<Error> error;  // of a server, after it was measured in part
};

// What was measured at rates; and beside it what is predicted for them, where points or a model on
// a device say so.
Result<Outcome> measured_outcome(batch::LoadRecord record, const batch::BatchQuestion& question,
                                 const std::optional<model::ResolvedModel>& model,
                                 const timing::TimingModel& timing) {
  Outcome outcome;
  outcome.answer.question = question;
  if (!question.points.empty() || (model && question.device)) {
    std::optional<text::JsonView> config;
    if (model) config = model->view();
    HEADROOM_ASSIGN(outcome.answer, batch::answer(question, config ? &*config : nullptr, timing));
  }
  outcome.answer.measured_load = std::move(record);
  return outcome;
}

Result<Outcome> answer_of(const Words& words, const Console& console) {
  HEADROOM_TRY(check_live_flags(words));
  HEADROOM_TRY(check_places(words, {"save-points"}));
  HEADROOM_ASSIGN(const Machines machines, load_machines(words, console));
  HEADROOM_ASSIGN(batch::BatchQuestion question, question_of(words, machines));
  std::optional<model::ResolvedModel> model;
  if (!words.operands.empty()) {
    HEADROOM_ASSIGN(model, model::resolve_model(words.operands.front()));
    question.model = model->name;
  }
  if (words.has("url") && words.has("rate")) {
    HEADROOM_ASSIGN(batch::LoadRecord record, measure_rates(words, console, question));
    if (question.open_load.is_search) {
      for (const auto& load : record.loads) {
        question.open_load.rates.push_back(load.asked_requests_per_second);
      }
    }
    return measured_outcome(std::move(record), question, model, machines.timing);
  }
  std::optional<LiveOutcome> live;
  if (words.has("url")) {
    HEADROOM_ASSIGN(live, measure_server(words, console, question));
  }
  std::optional<text::JsonView> config;
  if (model) config = model->view();
  std::optional<model::ResolvedModel> second;
  std::optional<batch::Companion> companion;
  if (words.has("colocate")) {
    if (!model || !question.device) {
      return Error{ErrorCode::usage, "a second model is predicted beside a first", "--colocate",
                   "MODEL and --device, too"};
    }
    HEADROOM_ASSIGN(second, model::resolve_model(words.value("colocate")));
    companion = batch::Companion{second->name, second->view()};
  }
  auto answered = batch::answer(question, config ? &*config : nullptr, machines.timing,
                                companion ? &*companion : nullptr);
  if (!answered && live && live->error) return *std::move(live->error);
  if (!answered) return std::move(answered).error();
  Outcome outcome{*std::move(answered), std::nullopt};
  if (live) {
    auto& notes = outcome.answer.notes;
    notes.insert(notes.begin(), live->notes.begin(), live->notes.end());
    outcome.answer.live = std::move(live->record);
    outcome.error = std::move(live->error);
  }
  return outcome;
}

Result<int> run_watch(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(const Machines machines, load_machines(words, console));
  HEADROOM_ASSIGN(batch::BatchQuestion question, question_of(words, machines));
  std::optional<model::ResolvedModel> model;
  if (!words.operands.empty()) {
    HEADROOM_ASSIGN(model, model::resolve_model(words.operands.front()));
    question.model = model->name;
  }
  std::optional<text::JsonView> config;
  if (model) config = model->view();
  return watch_server(words, console, question, config ? &*config : nullptr, machines.timing);
}

Result<int> run_batch(const Words& words, const Console& console) {
  HEADROOM_TRY(check_watch_flags(words));
  if (words.has("watch")) return run_watch(words, console);
  std::optional<batch::EmitRequest> emit;
  if (words.has("emit")) {
    HEADROOM_ASSIGN(emit, batch::parse_emit(words.value("emit")));
  }
  HEADROOM_ASSIGN(const Outcome outcome, answer_of(words, console));
  const batch::BatchAnswer& answer = outcome.answer;
  Forms forms;
  if (words.value("save-points") == "-") {
    HEADROOM_TRY(console.answer(formats::serving_points_csv(answer.question.points)));
  } else {
    forms.text = [&](const text::Terminal& terminal) {
      return report::batch_text(answer, terminal);
    };
  }
  forms.json = [&] { return report::batch_json(answer); };
  forms.page = [&] {
    return report::Page{"Headroom: batch", "batch", std::string(version()),
                        command_line("batch", words), report::batch_sections(answer)};
  };
  HEADROOM_TRY(deliver(forms, words, console));
  // Behind the answer, which a file that cannot be written must not take along.
  if (emit && !answer.measured_load) {
    HEADROOM_ASSIGN(const std::string content, batch::emitted(answer, *emit));
    HEADROOM_TRY(write_file_atomic(emit->file, content));
  }
  if (outcome.error) console.complain(*outcome.error);
  if (answer.live && answer.live->is_stopped) return exit_code_of(ErrorCode::partial);
  if (answer.question.points_partial) return exit_code_of(ErrorCode::partial);
  if (answer.measured_load) {
    const auto& search = answer.measured_load->search;
    if (search && search->is_stopped) return exit_code_of(ErrorCode::partial);
    const auto& loads = answer.measured_load->loads;
    if (std::any_of(loads.begin(), loads.end(), [](const auto& load) { return load.is_void; })) {
      return exit_code_of(ErrorCode::partial);
    }
  }
  return report::answers_plainly(answer) ? kExitYes : kExitNotPlainYes;
}

}  // namespace

Verb batch_verb() {
  Verb verb;
  verb.name = "batch";
  verb.summary = "the batch that meets a latency target and pays, and what the rest could hold";
  verb.operands = "[MODEL]";
  verb.most_operands = 1;
  verb.examples = {
      {"headroom batch facebook/opt-1.3b --device h100-sxm-64gb --dtype float16 --slo itl=2x@32",
       "without a server: the memory-gap paper's question"},
      {"headroom batch meta-llama/Llama-2-7b-hf --device a100-sxm-80gb --slo itl=50ms --json",
       "a target in milliseconds, for programs"},
      {"headroom batch --points sweep.csv --slo itl=2x@32 --host-gap 0.35",
       "from what was measured: batch,throughput_tokens_per_second,itl_ms[,running_mean,kv_pct]"},
      {"headroom batch --points results/ --slo itl=50ms",
       "from a folder of what `vllm bench serve --save-result` wrote, say, at several "
       "--max-concurrency"},
      {"headroom batch --url http://localhost:8000 --slo itl=2x@32 --save-points sweep.csv",
       "from a running OpenAI-compatible server, with the few measurements that it takes"},
      {"headroom batch facebook/opt-1.3b --device h100-sxm-64gb --slo ttft_p95=500ms,itl_p99=50ms",
       "requests as they come: the highest rate that keeps these percentiles, and the limit for "
       "it"},
      {"headroom batch --points sweep.csv --rate 2,4,8 --limit 96 --slo itl_p99=50ms",
       "percentiles at these rates, from what was measured"},
      {"headroom batch --url http://localhost:8000 --rate 4 --slo ttft_p95=500ms",
       "a running server, sent 4 requests a second whether or not it answers"},
      {"headroom batch facebook/opt-1.3b --device h100-sxm-64gb --price cloud=2.49,owned=30000 "
       "--emit kubernetes=serve.yaml",
       "what a million tokens cost, and a manifest that starts the server"},
      {"headroom batch --watch http://localhost:8000 --points sweep.csv --slo itl=50ms --limit 96 "
       "--on-change './notify.sh batch'",
       "a server at work: says when its --max-num-seqs should change, and what that pays"},
  };
  verb.flags = {
      {"device", "NAME", "a GPU that `headroom devices` lists; without it that of this machine"},
      kCalibrationFlag,
      {"points", "FILE",
       "measured: CSV, or what vLLM's, SGLang's, GuideLLM's or AIPerf's benchmark wrote (a folder "
       "of such files, too)"},
      {"url", "URL", "measure the server there; its key in the variable HEADROOM_API_KEY"},
      {"served-model", "NAME", "with --url: the model to ask for; without it the server's first"},
      {"save-points", "FILE.csv", "with --url: what was measured, for --points; - is stdout"},
      {"most-batch", "N",
       "with --url: the most requests at once, 2 to 4096; 256. With --watch: the largest limit; "
       "that of the points"},
      {"batches", "N,N...",
       "with --url: measure just these, or all: every usual limit; without it those that the "
       "decision needs"},
      {"window", "SECONDS",
       "with --url: the longest that one batch is watched, or with --rate how long; 30. With "
       "--rate "
       "alone: intervals are those of one run of that length"},
      {"time-limit", "SECONDS", "with --url: of all measurements; 900"},
      {"seed", "N", "of prompts, lengths and arrivals; 0"},
      {"watch", "URL",
       "read the metrics of the server there until interrupted, and say when its batch limit "
       "should change; --points or MODEL and --device give the law of its steps, else it is "
       "learned. "
       "--json: one object a reading. It ends with 1 where a change was said"},
      {"limit", "N",
       "with --watch: the batch limit it runs with; the first B_opt counts as that. With --rate: "
       "the limit of the server; else the best"},
      {"every", "SECONDS", "with --watch: between two readings; 5"},
      {"for", "SECONDS", "with --watch: end after that time"},
      {"metrics-file", "FILE",
       "with --watch: written in one step at each reading, as Prometheus' text (for node "
       "exporter's textfile collector)"},
      {"on-change", "CMD",
       "with --watch: run at a change, without a shell, 60 s at most; HEADROOM_BATCH and "
       "HEADROOM_BATCH_BEFORE say what it is"},
      {"slo", "TARGETS",
       "itl=50ms, or itl=2x@32: the mean time between tokens, of that at a batch. With commas, for "
       "requests as they come: ttft_p95=500ms,itl_p99=50ms,tpot=40ms,e2e_p90=20s; without a "
       "percentile the mean"},
      {"rate", "R[,R...]",
       "requests a second that come by themselves (a Poisson process): percentiles of their "
       "latencies, simulated, or with --url measured; or recorded: as in --requests; or search, "
       "with "
       "--url: the highest that keeps --slo. Without it a "
       "sweep, where --slo has "
       "percentiles"},
      {"attain", "SHARE",
       "the highest rate is that at which so many requests meet all targets; without it each "
       "target holds for its own percentile"},
      {"max-num-batched-tokens", "N", "with --rate: of an iteration of the engine; 2048"},
      {"no-chunked-prefill", "", "with --rate: prompts are read whole, and hold up the others"},
      {"prefill-rate", "N",
       "with --rate: prompt tokens a second that the server reads when it does nothing else; else "
       "predicted (MODEL and --device), or within the measured steps"},
      {"min-efficiency", "SHARE", "throughput per sequence, of that of one alone; 0.1"},
      {"input-tokens", "N", "of a request; 161, the mean of ShareGPT"},
      {"output-tokens", "N", "of a request; 338, the mean of ShareGPT"},
      {"length-variation", "SHARE",
       "how far lengths vary about these means: 0 all alike, 1 much; 1"},
      {"requests", "FILE",
       "real requests: Azure, BurstGPT, Vidur CSV, Mooncake JSONL. Their lengths; and with --rate "
       "or "
       "percentiles when they came, faster or slower, and which prompts begin alike"},
      {"dtype", "TYPE", "of weights and cache: bfloat16 (without it), float16 or float32"},
      {"kv-dtype", "TYPE",
       "of the cache, predicted: fp8, int8 or int4; without it that of --dtype"},
      {"quantize", "TYPE",
       "weights of 8 or 4 bits, predicted: fp8, int8 or fp4, products in it where the GPU has "
       "that; "
       "int4, products in --dtype"},
      {"tp", "N", "GPUs of one server that share each layer (tensor parallel), predicted; 1"},
      {"pp", "N", "GPUs of one server that share the layers (pipeline parallel), predicted; 1"},
      {"colocate", "MODEL", "a second model in the memory that is set free, under MPS"},
      {"host-gap", "SHARE",
       "of a step in which the GPU waits for the host: 0 where the engine schedules beside the "
       "GPU; "
       "else predicted, of vLLM 0.6.3"},
      {"most-replicas", "N", "on one GPU, 1 to 16; 4"},
      {"price", "LIST",
       "what a million output tokens cost: cloud=2.49 (an hour of one GPU), owned=30000 (one GPU "
       "with its share of the machine), years=4, watts=1000 and kwh=0.15, busy=0.6"},
      {"engine", "NAME", "of the commands: vllm (without it), sglang, tensorrt-llm, llama.cpp"},
      {"emit", "KIND=FILE", "write what starts the servers: kubernetes=FILE.yaml, shell=FILE.sh"},
      kJsonFlag,
      kHtmlFlag,
      kOutputFlag,
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.run = run_batch;
  return verb;
}

}  // namespace headroom::cli
