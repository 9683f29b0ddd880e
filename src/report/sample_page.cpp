// Prints the page of the sample answer, for tests/browser: sample_page [WORDS] puts WORDS wherever
// something from outside stands. A tool of the tests, not of the product.
#include <cstdio>

#include "report/fit_html.h"
#include "report/sample_answer.h"

int main(int argc, char** argv) {
  using namespace headroom;
  const fit::FitAnswer answer =
      argc > 1 ? report::sample_answer_with(argv[1]) : report::sample_answer();
  const report::Page page{answer.model, "fit", "0.0.0", answer.model, report::fit_sections(answer)};
  const std::string html = report::render_page(page);
  return std::fwrite(html.data(), 1, html.size(), stdout) == html.size() ? 0 : 1;
}
