#include "fit/methods.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/parallel.h"
#include "fit/correction.h"
#include "fit/prediction.h"
#include "fit/scenario.h"
#include "fit/search.h"
#include "fit/shared_steps.h"

namespace headroom::fit {

namespace {

struct Candidate {
  FitQuestion question;
  MethodRow row;
};

// How much is computed twice: nothing, cheap operators, all of forward.
int recomputation_of(const FitQuestion& question) {
  switch (question.checkpointing.kind) {
    case CheckpointingKind::none:
      return 0;
    case CheckpointingKind::selective:
      return 1;
    case CheckpointingKind::every_n:
    case CheckpointingKind::full:
      return 2;
  }
  return 2;
}

int rank_of(Verdict verdict) {
  return verdict == Verdict::yes ? 0 : verdict == Verdict::at_risk ? 1 : 2;
}

// What fits: less recomputed, less sent. What does not: what misses least. Equals stay in the order
// of divisions_among().
bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.row.reason.empty() != b.row.reason.empty()) return a.row.reason.empty();
  if (a.row.verdict != b.row.verdict) return rank_of(a.row.verdict) < rank_of(b.row.verdict);
  const auto room = [](const Candidate& c) { return -c.row.room.expected.count; };
  if (a.row.verdict == Verdict::no) return room(a) < room(b);
  return std::tuple(recomputation_of(a.question), a.row.sent.count) <
         std::tuple(recomputation_of(b.question), b.row.sent.count);
}

std::vector<std::string> checkpointings_of(const FitQuestion& question) {
  if (question.given.contains("checkpointing")) return {""};
  return {"none", "selective", "full"};
}

Result<std::vector<Candidate>> candidates_of(const FitQuestion& question, int64_t gpus) {
  std::vector<Candidate> candidates;
  const std::string trained = method_word(question);
  for (const std::string& division : divisions_among(gpus)) {
    for (const std::string& checkpointing : checkpointings_of(question)) {
      Candidate candidate{question, {}};
      MethodRow& row = candidate.row;
      row.method = trained == "full" ? division : trained + "," + division;
      row.checkpointing = checkpointing;
      row.flags = "--method " + row.method;
      HEADROOM_TRY(candidate.question.set("method", row.method));
      if (!checkpointing.empty()) {
        HEADROOM_TRY(candidate.question.set("checkpointing", checkpointing));
        if (checkpointing != "none") row.flags += " --checkpointing " + checkpointing;
      }
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

void fill(const Scenario& base, Candidate& candidate) {
  MethodRow& row = candidate.row;
  const auto refuse = [&](const Error& error) { row.reason = error.message; };
  const auto scenario = vary(base, candidate.question);
  if (!scenario) return refuse(scenario.error());
  const auto prediction = predict(*scenario);
  if (!prediction) return refuse(prediction.error());
  row.verdict = prediction->verdict;
  row.allocated_provenance = provenance_of(*scenario, Metric::peak_allocated);
  row.reserved_provenance = provenance_of(*scenario, Metric::peak_reserved);
  row.device_used_provenance = provenance_of(*scenario, Metric::device_used);
  row.peak_allocated = prediction->peak_allocated;
  row.peak_reserved = prediction->peak_reserved;
  row.device_used = prediction->device_used;
  row.room = room_within(*scenario, row.device_used);
  row.sent =
      bytes_sent(candidate.question, prediction->parameter_count, prediction->trainable_count);
  if (scenario->traced) return;  // each size would be a trace of its own
  if (const auto largest = largest_batch(*scenario, *prediction)) row.largest_batch = *largest;
}

int64_t bytes_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

}  // namespace

std::vector<std::string> divisions_among(int64_t gpus) {
  const std::string all = ":" + std::to_string(gpus);
  std::vector<std::string> words{"ddp" + all, "zero1" + all, "zero2" + all, "fsdp2" + all};
  for (int64_t group = gpus / 2; group >= 2; --group) {
    if (gpus % group != 0) continue;
    words.push_back("fsdp2:" + std::to_string(group) +
                    ",replicate:" + std::to_string(gpus / group));
  }
  return words;
}

Bytes bytes_sent(const FitQuestion& q, int64_t parameters, int64_t trainable) {
  const auto ring = [](int64_t ranks) {
    return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  };
  const bool is_mixed = q.mixed_precision != MixedPrecision::none;
  const int64_t stored = is_mixed ? 4 : bytes_of(q.dtype);
  const auto trained_elements = static_cast<double>(trainable);
  const auto micro_batches = static_cast<double>(q.grad_accum);
  const double all_elements = static_cast<double>(parameters);
  const double half = ring(q.ranks) * trained_elements * 2;  // ZeRO's, in half precision
  double sent = 0;
  switch (q.division) {
    case Division::none:
      break;
    case Division::ddp: {
      const int64_t each = q.method == Method::full ? stored : bytes_of(q.lora_dtype);
      sent = 2 * ring(q.ranks) * trained_elements * static_cast<double>(each);
      break;
    }
    case Division::zero1:
      sent = 2 * half;
      break;
    case Division::zero2:
      sent = micro_batches * half + half;
      break;
    case Division::fsdp1:
    case Division::fsdp2: {
      const double each = is_mixed ? 2 : static_cast<double>(stored);
      const double reduced = trained_elements * each;
      sent = ring(q.ranks) * (2 * all_elements * each + reduced) +
             2 * ring(q.replicas) * reduced / static_cast<double>(q.ranks);
      sent *= micro_batches;
      break;
    }
  }
  constexpr double kMost = 9e18;
  return Bytes(static_cast<int64_t>(std::min(sent, kMost)));
}

Result<MethodsAnswer> choose_method(const FitQuestion& question, int64_t gpus) {
  HEADROOM_ASSIGN(std::vector<Candidate> candidates, candidates_of(question, gpus));
  HEADROOM_ASSIGN(const Scenario scenario, resolve(question));
  for_each_in_parallel(candidates.size(), 0, [&](size_t i) { fill(scenario, candidates[i]); });
  std::ranges::stable_sort(candidates, comes_before);

  MethodsAnswer answer;
  answer.model = scenario.model->name;
  HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
  answer.parameter_count = model::parameter_count(*step->graph, false);
  answer.trainable_count = model::parameter_count(*step->graph, true);
  answer.device = memory_of_device(scenario);
  answer.device.count = gpus;
  answer.batch = question.batch;
  if (reads_seq(scenario)) answer.seq = question.seq;
  answer.grad_accum = question.grad_accum;
  for (Candidate& candidate : candidates) answer.rows.push_back(std::move(candidate.row));
  answer.notes.emplace_back(
      "the order is no prediction of time: what fits, recomputes less, sends less; then DDP before "
      "ZeRO before FSDP");
  answer.warnings = scenario.warnings;
  answer.assumptions = scenario.assumptions;
  return answer;
}

}  // namespace headroom::fit
