#include "batch/batch.h"

#include <algorithm>

#include "base/file.h"
#include "base/version.h"
#include "batch/checkpoint.h"
#include "batch/emit.h"
#include "cli/batch_flags.h"
#include "cli/batch_live.h"
#include "cli/batch_question.h"
#include "cli/batch_watch.h"
#include "cli/deliver.h"
#include "cli/machine.h"
#include "cli/verb.h"
#include "model/builtin.h"
#include "report/batch/html.h"
#include "report/batch/json.h"
#include "report/batch/text.h"

namespace headroom::cli {
namespace {

struct Outcome {
  batch::BatchAnswer answer;
  std::optional<Error> error;  // of a server, after it was measured in part
};

// The question with its models.
struct Asked {
  Machines machines;
  batch::BatchQuestion question;
  std::optional<model::ResolvedModel> model;
  std::optional<model::ResolvedModel> second;
};

// What the models of a question say: views of them, which must stay where they are.
struct Views {
  explicit Views(const Asked& asked) {
    if (asked.model) config = asked.model->view();
    if (asked.second) companion = batch::Companion{asked.second->name, asked.second->view()};
  }
  std::optional<text::JsonView> config;
  std::optional<batch::Companion> companion;
  [[nodiscard]] const text::JsonView* config_or_null() const { return config ? &*config : nullptr; }
  [[nodiscard]] const batch::Companion* companion_or_null() const {
    return companion ? &*companion : nullptr;
  }
};

Result<Asked> asked(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(Machines machines, load_machines(words, console));
  HEADROOM_ASSIGN(batch::BatchQuestion question, batch_question(words, machines));
  Asked all{std::move(machines), std::move(question), {}, {}};
  if (!words.operands.empty()) {
    HEADROOM_ASSIGN(all.model, model::resolve_model(words.operands.front()));
    all.question.model = all.model->name;
    HEADROOM_TRY(batch::take_checkpoint_type(all.model->view(), all.question));
  }
  if (words.has("colocate")) {
    HEADROOM_ASSIGN(all.second, model::resolve_model(words.value("colocate")));
  }
  return all;
}

// What was measured at rates; and beside it what is predicted for them, where points or a model on
// a device say so.
Result<Outcome> outcome_at_rates(Asked& asked, const Views& views, const Words& words,
                                 const Console& console) {
  HEADROOM_ASSIGN(batch::LoadRecord record, measure_rates(words, console, asked.question));
  if (asked.question.open_load.is_search) {
    for (const auto& load : record.loads) {
      asked.question.open_load.rates.push_back(load.asked_requests_per_second);
    }
  }
  Outcome outcome;
  outcome.answer.question = asked.question;
  outcome.error = record.error;
  if (!asked.question.points.empty() || (asked.model && asked.question.device)) {
    HEADROOM_ASSIGN(outcome.answer,
                    batch::answer(asked.question, views.config_or_null(), asked.machines.timing));
  }
  outcome.answer.measured_load = std::move(record);
  return outcome;
}

Result<Outcome> answer_of(const Words& words, const Console& console) {
  HEADROOM_TRY(check_places(words, {"save-points"}));
  HEADROOM_ASSIGN(Asked all, asked(words, console));
  const Views views(all);
  std::optional<LiveOutcome> live;
  if (words.has("url")) {
    HEADROOM_TRY(batch::check_before_measuring(all.question, views.config_or_null(),
                                               all.machines.timing, views.companion_or_null()));
    if (words.has("rate")) return outcome_at_rates(all, views, words, console);
    HEADROOM_ASSIGN(live, measure_server(words, console, all.question));
  }
  auto answered = batch::answer(all.question, views.config_or_null(), all.machines.timing,
                                views.companion_or_null());
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
  HEADROOM_ASSIGN(const Asked all, asked(words, console));
  const Views views(all);
  return watch_server(words, console, all.question, views.config_or_null(), all.machines.timing);
}

// Whether a part of what was asked is missing.
bool is_partial(const batch::BatchAnswer& answer) {
  if (answer.live && answer.live->is_stopped) return true;
  if (answer.question.points_partial) return true;
  if (!answer.measured_load) return false;
  const batch::LoadRecord& record = *answer.measured_load;
  if (record.error || (record.search && record.search->is_stopped)) return true;
  return std::ranges::any_of(record.loads, &serving::MeasuredLoad::is_void);
}

Result<void> write_emitted(const batch::BatchAnswer& answer, const batch::EmitRequest& emit,
                           const Console& console) {
  if (!report::answers_plainly(answer)) {
    console.note("--emit: no target is met, so there is nothing to start: " + emit.file +
                 " is not written");
    return {};
  }
  HEADROOM_ASSIGN(const std::string content, batch::emitted(answer, emit));
  return write_file_atomic(emit.file, content);
}

Result<int> run_batch(const Words& words, const Console& console) {
  HEADROOM_TRY(check_batch_flags(words));
  if (words.has("watch")) return run_watch(words, console);
  std::vector<batch::EmitRequest> emits;
  for (const std::string& value : words.values("emit")) {
    HEADROOM_ASSIGN(batch::EmitRequest emit, batch::parse_emit(value));
    emits.push_back(std::move(emit));
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
  for (const auto& emit : emits) HEADROOM_TRY(write_emitted(answer, emit, console));
  if (outcome.error) console.complain(*outcome.error);
  if (is_partial(answer)) return exit_code_of(ErrorCode::partial);
  return report::answers_plainly(answer) ? kExitYes : kExitNotPlainYes;
}

std::vector<Example> examples() {
  return {
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
}

std::vector<Flag> measuring_flags() {
  return {
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
      {"prefix-hit", "SHARE",
       "with --url: of each prompt begins as all others do, for a cache of prefixes to find; what "
       "it found is read back; 0: no two begin alike"},
      {"window", "SECONDS",
       "with --url: the longest that one batch is watched, or with --rate how long; 30. With "
       "--rate alone: intervals are those of one run of that length"},
      {"time-limit", "SECONDS", "with --url: of all measurements; 900"},
      {"seed", "N", "of prompts, lengths and arrivals; 0"},
  };
}

std::vector<Flag> watching_flags() {
  return {
      {"watch", "URL",
       "read the metrics of the server there until interrupted, and say when its batch limit "
       "should change; --points or MODEL and --device give the law of its steps, else it is "
       "learned. --json: one object a reading. It ends with 1 where a change was said"},
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
  };
}

std::vector<Flag> open_load_flags() {
  return {
      {"slo", "TARGETS",
       "itl=50ms, or itl=2x@32: the mean time between tokens, of that at a batch. With commas, for "
       "requests as they come: ttft_p95=500ms,itl_p99=50ms,tpot=40ms,e2e_p90=20s; without a "
       "percentile the mean"},
      {"rate", "R[,R...]",
       "requests a second that come by themselves (a Poisson process): percentiles of their "
       "latencies, simulated, or with --url measured; or recorded: as in --requests; or search, "
       "with --url: the highest that keeps --slo. Without it a sweep, where --slo has percentiles"},
      {"attain", "SHARE",
       "the highest rate is that at which so many requests meet all targets; without it each "
       "target holds for its own percentile"},
      {"max-num-batched-tokens", "N", "with --rate: of an iteration of the engine; 2048"},
      {"no-chunked-prefill", "", "with --rate: prompts are read whole, and hold up the others"},
      {"speculate", "K@SHARE[@COST]",
       "with --rate or percentiles: the simulated engine verifies K drafted tokens a step, each "
       "accepted with this share if those before it were; drafting one takes COST of a decode step "
       "(0): 4@0.7"},
      {"prefill-rate", "N",
       "with --rate: prompt tokens a second that the server reads when it does nothing else; else "
       "predicted (MODEL and --device), or within the measured steps"},
  };
}

std::vector<Flag> model_flags() {
  return {
      {"min-efficiency", "SHARE", "throughput per sequence, of that of one alone; 0.1"},
      {"input-tokens", "N", "of a request; 161, the mean of ShareGPT"},
      {"output-tokens", "N", "of a request; 338, the mean of ShareGPT"},
      {"length-variation", "SHARE",
       "how far lengths vary about these means: 0 all alike, 1 much; 1"},
      {"requests", "FILE",
       "real requests: Azure, BurstGPT, Vidur CSV, Mooncake JSONL. Their lengths; and with --rate "
       "or percentiles when they came, faster or slower, and which prompts begin alike"},
      {"dtype", "TYPE", "of weights and cache: bfloat16 (without it), float16 or float32"},
      {"kv-dtype", "TYPE",
       "of the cache, predicted, and for the commands: fp8, int8 or int4; without it that of "
       "--dtype"},
      {"quantize", "TYPE",
       "weights of 8 or 4 bits, predicted: fp8, int8 or fp4, products in it where the GPU has "
       "that; int4, products in --dtype. Without it as config.json says the checkpoint is"},
      {"tp", "N",
       "GPUs of one server that share each layer (tensor parallel), predicted; 1. Bytes are of "
       "each GPU then"},
      {"pp", "N",
       "GPUs of one server that share the layers (pipeline parallel), predicted; 1. Bytes are of "
       "each GPU then"},
      {"colocate", "MODEL",
       "a second model in the memory that is set free, with the same settings, under MPS on one of "
       "NVIDIA's GPUs"},
  };
}

std::vector<Flag> command_flags() {
  return {
      {"host-gap", "SHARE",
       "of a step in which the GPU waits for the host: 0 where the engine schedules beside the "
       "GPU; else predicted, as in today's engines, or as in --engine's version"},
      {"most-replicas", "N", "on one GPU, 1 to 16; 4"},
      {"price", "LIST",
       "what a million output tokens cost: cloud=2.49 (an hour of one GPU), owned=30000 (one GPU "
       "with its share of the machine), years=4, watts=1000 and kwh=0.15, busy=0.6"},
      {"engine", "NAME",
       "of the commands: vllm (without it), sglang, tensorrt-llm, llama.cpp; vllm@0.6: predicted "
       "with the host and the sampling of such servers, from 0.6 to before 0.8, and starts one"},
      {"emit", "KIND=FILE",
       "write what starts the server of the first line: kubernetes=FILE.yaml, shell=FILE.sh; "
       "nothing where the target is missed. More than once for both",
       0, true},
  };
}

}  // namespace

Verb batch_verb() {
  Verb verb;
  verb.name = "batch";
  verb.summary = "the batch that meets a latency target and pays, and what the rest could hold";
  verb.operands = "[MODEL]";
  verb.most_operands = 1;
  verb.examples = examples();
  for (const auto& flags :
       {measuring_flags(), watching_flags(), open_load_flags(), model_flags(), command_flags()}) {
    verb.flags.insert(verb.flags.end(), flags.begin(), flags.end());
  }
  verb.flags.insert(verb.flags.end(),
                    {kJsonFlag, kHtmlFlag, kOutputFlag, kQuietFlag, kNoColorFlag, kHelpFlag});
  verb.run = run_batch;
  return verb;
}

}  // namespace headroom::cli
