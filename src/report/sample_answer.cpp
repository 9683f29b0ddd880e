#include "report/sample_answer.h"

namespace headroom::report {
namespace {

using fit::Component;

constexpr Bytes mib(int64_t count) { return Bytes(count * kMiB); }

// Writes a step as a simple machine would: forward keeps activations layer by layer, the loss makes
// logits, backward gives back activations and makes gradients, the optimizer needs temporaries.
class Step {
 public:
  explicit Step(fit::Timeline& timeline) : timeline_(timeline) {
    timeline_.labels = {"",
                        "forward",
                        "loss",
                        "backward",
                        "optimizer",
                        "aten::mm",
                        "aten::_log_softmax",
                        "aten::_foreach_addcmul_"};
  }

  void set(Component component, Bytes bytes) { now_[component] = bytes; }
  void grow(Component component, Bytes bytes) { now_[component] += bytes; }

  void mark(uint32_t phase, uint32_t module, uint32_t op) {
    event_ += 7;
    if (now_.allocated() > reserved_) reserved_ = now_.allocated() + mib(140);
    timeline_.points.push_back({event_, phase, module, op, reserved_, now_});
    const fit::TimelinePoint& peak = timeline_.points[timeline_.peak];
    if (now_.allocated() > peak.bytes.allocated()) timeline_.peak = timeline_.points.size() - 1;
  }

  uint32_t label(const std::string& name) {
    timeline_.labels.push_back(name);
    return static_cast<uint32_t>(timeline_.labels.size() - 1);
  }

 private:
  fit::Timeline& timeline_;
  fit::ComponentBytes now_;
  Bytes reserved_;
  int64_t event_ = 0;
};

void forward_and_loss(Step& step, int layers) {
  for (int layer = 0; layer < layers; ++layer) {
    const uint32_t module = step.label("model.layers." + std::to_string(layer) + ".mlp");
    for (int op = 0; op < 20; ++op) {
      step.set(Component::temporaries, mib(op % 4 == 0 ? 64 : 480));
      step.grow(Component::saved_activations, mib(24));
      step.mark(1, module, 5);
    }
  }
  const uint32_t head = step.label("lm_head");
  step.set(Component::logits, mib(1000));
  step.mark(1, head, 5);
  step.set(Component::loss, mib(4000));
  step.mark(2, head, 6);
  step.set(Component::loss, mib(2000));
  step.set(Component::lm_head_gradient, mib(250));
  step.mark(3, head, 5);
  step.set(Component::loss, mib(0));
}

void backward_and_optimizer(Step& step, int layers) {
  for (int layer = layers - 1; layer >= 0; --layer) {
    const auto module = static_cast<uint32_t>(8 + layer);
    for (int op = 0; op < 20; ++op) {
      step.set(Component::temporaries, mib(op % 4 == 0 ? 128 : 700));
      step.grow(Component::saved_activations, mib(-24));
      step.grow(Component::gradients, mib(21));
      step.mark(3, module, 5);
    }
  }
  step.set(Component::logits, mib(0));
  for (int chunk = 0; chunk < 20; ++chunk) {
    step.set(Component::temporaries, mib(chunk < 10 ? 1400 * chunk : 12600));
    step.mark(4, 0, 7);
  }
  step.set(Component::temporaries, mib(0));
  step.set(Component::gradients, mib(0));
  step.set(Component::lm_head_gradient, mib(0));
  step.mark(4, 0, 7);
}

fit::Timeline sample_timeline(int layers) {
  fit::Timeline timeline;
  Step step(timeline);
  step.set(Component::parameters, mib(13562));
  step.set(Component::optimizer_states, mib(27124));
  step.set(Component::lm_head_weight, mib(250));
  step.set(Component::lm_head_state, mib(500));
  step.set(Component::other, mib(3));
  step.set(Component::workspaces, mib(17));
  forward_and_loss(step, layers);
  backward_and_optimizer(step, layers);
  return timeline;
}

fit::Remedy remedy(std::string name, std::string title, std::string flag, Bytes saves, Bytes used,
                   int64_t batch) {
  fit::Remedy r;
  r.name = std::move(name);
  r.title = std::move(title);
  r.flag = std::move(flag);
  r.how =
      "Set it in TrainingArguments, or build the optimizer with\n"
      "torch.optim.AdamW(model.parameters(), fused=True).";
  r.cost = "nothing measurable";
  r.saves = saves;
  r.peak_allocated = used - mib(1100);
  r.device_used = {used - mib(300), used, used + mib(500)};
  r.verdict = used + mib(500) <= mib(81000) ? fit::Verdict::yes : fit::Verdict::no;
  r.largest_batch = fit::Largest{batch, batch == 4096, r.peak_allocated, r.device_used};
  return r;
}

void fill_remedies(fit::FitAnswer& answer) {
  const Bytes used = answer.memory.device_used.expected;
  answer.remedies = {
      remedy("lora", "LoRA of rank 16", "--method lora", mib(52000), used - mib(52000), 21),
      remedy("adamw-8bit", "8-bit AdamW states", "--optimizer adamw-8bit", mib(33100),
             used - mib(33100), 12),
      remedy("fused-optimizer", "fused instead of foreach optimizer", "--optimizer adamw-fused",
             mib(12600), used - mib(12600), 9),
      remedy("full-checkpointing", "checkpoint every layer", "--checkpointing full", mib(2100),
             used - mib(2100), 4096),
      remedy("expandable-segments", "expandable segments", "--allocator expandable_segments:True",
             mib(-20), used + mib(20), 5),
  };
}

}  // namespace

fit::FitAnswer sample_answer(int layers) {
  fit::FitAnswer answer;
  answer.model = "mistralai/Mistral-7B-v0.1";
  answer.parameter_count = 7'241'732'096;
  answer.trainable_count = 7'241'732'096;
  answer.device = {"a100-sxm-80gb", 1, mib(81920), mib(81000), Provenance::datasheet};
  answer.settings = {{"batch", "4", fit::SettingOrigin::given},
                     {"seq", "4096", fit::SettingOrigin::given},
                     {"dtype", "bf16", fit::SettingOrigin::standard},
                     {"optimizer", "adamw-foreach", fit::SettingOrigin::derived},
                     {"attention", "sdpa-flash", fit::SettingOrigin::derived}};
  answer.time = fit::StepTime{.step_seconds = {4.13, 5.32, 6.85},
                              .tokens_per_second = 3080,
                              .compute_seconds = 5.32,
                              .kernels = 7421,
                              .provenance = Provenance::extrapolated,
                              .basis = "law of a100-sxm-80gb for gemm"};
  answer.timeline = sample_timeline(layers);
  const fit::TimelinePoint& peak = answer.timeline.points[answer.timeline.peak];
  fit::MemoryFigures& memory = answer.memory;
  memory.breakdown = peak.bytes;
  memory.breakdown[Component::cached_unused] = peak.reserved - peak.bytes.allocated();
  memory.breakdown[Component::context] = mib(500);
  memory.peak_allocated = peak.bytes.allocated();
  memory.peak_reserved = peak.reserved;
  memory.peak_requested = memory.peak_allocated - mib(6);
  memory.steady_allocated = answer.timeline.points.back().bytes.allocated();
  memory.peak_at = {peak.event, "optimizer", "", "aten::_foreach_addcmul_",
                    "The foreach optimizer makes a temporary as large as all gradients."};
  const Bytes used = memory.breakdown.total();
  memory.device_used = {used - mib(300), used, used + mib(500)};
  answer.room = {answer.device.offered - memory.device_used.high, answer.device.offered - used,
                 answer.device.offered - memory.device_used.low};
  answer.verdict = answer.room.low.count > 0    ? fit::Verdict::yes
                   : answer.room.high.count < 0 ? fit::Verdict::no
                                                : fit::Verdict::at_risk;
  answer.largest_batch = fit::Largest{5, false, used - mib(900), memory.device_used};
  answer.longest_seq = fit::Largest{5120, false, used - mib(900), memory.device_used};
  fill_remedies(answer);
  answer.warnings = {"flash-attn is assumed to be installed"};
  answer.assumptions = {"the context of a driver of 2024"};
  return answer;
}

fit::FitAnswer sample_answer_with(const std::string& text) {
  fit::FitAnswer answer = sample_answer(2);
  answer.model = text;
  answer.device.name = text;
  answer.memory.peak_at = {answer.memory.peak_at.event, text, text, text, text};
  for (fit::Setting& setting : answer.settings) setting = {text, text, setting.origin};
  for (fit::Remedy& r : answer.remedies) {
    r.name = r.title = r.flag = r.how = r.cost = text;
  }
  for (std::string& label : answer.timeline.labels) label = text;
  answer.warnings = {text};
  answer.assumptions = {text};
  return answer;
}

fit::AgainstAnswer sample_against() {
  fit::AgainstAnswer answer;
  answer.file = "measured.csv";
  fit::AgainstRow good;
  good.id = "7";
  good.source = "lab";
  good.model = "gpt2";
  good.supported = true;
  good.metric = "peak_allocated";
  good.measured = mib(1000);
  good.predicted = mib(1004);
  good.error_pct = 0.4;
  fit::AgainstRow bad;
  bad.id = "8";
  bad.source = "lab";
  bad.model = "mamba";
  bad.reason = "architecture MambaForCausalLM is not known";
  bad.metric = "peak_allocated";
  bad.measured = mib(900);
  answer.rows = {good, bad};
  answer.summary = {{"all", "peak_allocated", 2, 1, 0.4, 0.4, 0.4, "7", std::nullopt}};
  return answer;
}

}  // namespace headroom::report
