// Records of `bench nongemm` and `bench decode`: any bytes give records or an Error, and records an
// answer whose figures are finite and whose shares are shares.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/measured_decode.h"
#include "bench/nongemm.h"
#include "report/bench/decode_html.h"
#include "report/bench/json.h"
#include "report/bench/nongemm.h"
#include "report/bench/text.h"

namespace {

// What the records say of the model of the first decode step, as if it were a small one of ours.
void tell_decode_steps(const headroom::bench::NongemmRecords& records) {
  namespace bench = headroom::bench;
  static const auto model = *headroom::model::resolve_model("openai-community/gpt2");
  const auto first = std::find_if(records.records.begin(), records.records.end(),
                                  [](const auto& record) { return record.decode.has_value(); });
  if (first == records.records.end() || !first->setting.context) return;
  bench::MeasuredDecodeQuestion question;
  question.model = first->setting.model;
  question.context = *first->setting.context;
  question.weights =
      first->setting.dtype == "fp32" ? headroom::op::DType::f32 : headroom::op::DType::bf16;
  const auto answer = bench::answer_decode(model.view(), question, records);
  if (!answer) return;
  for (const auto& step : answer->steps) {
    HEADROOM_CHECK(std::isfinite(step.step.seconds) && step.step.seconds > 0, "a time that is one");
    HEADROOM_CHECK(std::isfinite(step.parts_seconds()) && step.parts_seconds() > 0, "parts");
    HEADROOM_CHECK(std::isfinite(step.attention.bytes_per_second()), "a rate that is one");
  }
  (void)headroom::report::decode_text(*answer, {}, headroom::text::Terminal{});
  (void)headroom::report::decode_json(*answer, {});
  (void)headroom::report::decode_sections(*answer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto records = headroom::bench::parse_nongemm_records(text, "fuzz");
  if (!records) {
    HEADROOM_CHECK(!records.error().message.empty(), "an error without words");
    return 0;
  }
  const auto answer = headroom::bench::answer_nongemm(*records);
  for (const auto& row : answer.rows) {
    HEADROOM_CHECK(std::isfinite(row.seconds) && row.seconds > 0, "a time that is one");
    for (const double pct : {row.gemm_pct, row.attention_pct, row.nongemm_pct, row.covered_pct,
                             row.paper_nongemm_pct.value_or(0)}) {
      HEADROOM_CHECK(pct >= 0 && pct <= 100 + 1e-6, "a share that is one");
    }
  }
  for (const auto& record : records->records) {
    const std::string line = headroom::bench::nongemm_record_json(record).dump();
    const auto again = headroom::bench::parse_nongemm_records(
        headroom::bench::nongemm_header(*records->machine).dump() + "\n" + line, "again");
    HEADROOM_CHECK(again.has_value() && again->records.size() == 1, "what is written is read");
  }
  (void)headroom::report::nongemm_text(answer, {}, headroom::text::Terminal{});
  (void)headroom::report::nongemm_json(answer, {});
  tell_decode_steps(*records);
  return 0;
}
