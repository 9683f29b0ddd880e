// Files of measurements: each row of any bytes is a question, or an Error with the reason.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fit/measured/measured_row.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = text::read_csv(text, "fuzz");
  if (!table) return 0;
  for (size_t row = 0; row < table->rows.size(); ++row) {
    for (const fit::MeasuredFigure& figure : fit::figures_of(*table, row)) {
      HEADROOM_CHECK(figure.value >= Bytes(0) && figure.value <= Bytes(int64_t{1} << 60), "bound");
    }
    const auto question = fit::question_of(*table, row);
    HEADROOM_CHECK(question || !question.error().message.empty(), "no reason");
    if (question) HEADROOM_CHECK(question->batch > 0 && question->seq > 0, "no such step");
  }
  return 0;
}
