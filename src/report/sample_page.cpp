// Prints a page of a sample answer, for tests/browser: sample_page KIND [WORDS] puts WORDS wherever
// something from outside stands; fit, pack, ops, compare, ranks and predicted are kinds. A tool of
// the tests, not of the product.
#include <cstdio>
#include <string_view>

#include "report/fit/html.h"
#include "report/ops/comparison_html.h"
#include "report/ops/html.h"
#include "report/ops/predicted_html.h"
#include "report/ops/ranks_html.h"
#include "report/pack/html.h"
#include "report/sample_answer.h"
#include "report/sample_ops.h"
#include "report/sample_pack.h"

namespace {

using namespace headroom;

report::Page fit_page(const char* words) {
  const fit::FitAnswer answer =
      words != nullptr ? report::sample_answer_with(words) : report::sample_answer();
  return {answer.model, "fit", "0.0.0", answer.model, report::fit_sections(answer)};
}

report::Page pack_page(const char* words) {
  const pack::PackAnswer answer = report::sample_pack(words != nullptr ? words : "run", 3000);
  return {answer.file, "pack", "0.0.0", answer.file, report::pack_sections(answer)};
}

report::Page ops_page(const char* words) {
  const report::SampleOps sample = report::sample_ops(words != nullptr ? words : "run", 30'000);
  return {sample.answer.trace.file, "ops", "0.0.0", sample.answer.trace.file,
          report::ops_sections(sample.answer, sample.timeline)};
}

report::Page page_of(std::string_view what, const char* words) {
  const char* const said = words != nullptr ? words : "run";
  const auto page = [&](std::vector<report::Section> sections) {
    return report::Page{said, "ops", "0.0.0", said, std::move(sections)};
  };
  if (what == "pack") return pack_page(words);
  if (what == "ops") return ops_page(words);
  if (what == "compare") {
    return page(report::ops_comparison_sections(report::sample_comparison(said)));
  }
  if (what == "ranks") return page(report::ops_ranks_sections(report::sample_ranks(said)));
  if (what == "predicted") {
    return page(report::ops_predicted_sections(report::sample_predicted(said)));
  }
  return fit_page(words);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* const words = argc > 2 ? argv[2] : nullptr;
  const std::string html = report::render_page(page_of(argv[1], words));
  return std::fwrite(html.data(), 1, html.size(), stdout) == html.size() ? 0 : 1;
}
