// The sample answer as text and JSON, held against files. HEADROOM_UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "report/fit/json.h"
#include "report/fit/text.h"
#include "report/sample_answer.h"
#include "tests/tools/room_test.h"

namespace headroom::report {
namespace {

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = tests::source_dir() + "/src/report/testdata/" + name;
  if (std::getenv("HEADROOM_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file_atomic(path, actual));
  }
  const Result<std::string> expected = read_file(path, Bytes(kMiB));
  ASSERT_TRUE(expected) << expected.error().to_string();
  EXPECT_EQ(*expected, actual);
}

text::Terminal wide(int columns) {
  text::Terminal terminal;
  terminal.columns = columns;
  return terminal;
}

TEST(Golden, FitText) { expect_golden("fit.txt", fit_text(sample_answer(), wide(80))); }

TEST(Golden, FitTextNarrow) { expect_golden("fit_44.txt", fit_text(sample_answer(), wide(44))); }

TEST(Golden, FitJson) {
  fit::FitAnswer answer = sample_answer();
  answer.timeline.points.resize(2);
  answer.timeline.labels.resize(8);
  answer.timeline.peak = 1;
  expect_golden("fit.json", fit_json(answer).dump(2) + "\n");
}

TEST(Golden, AgainstText) {
  expect_golden("against.txt", against_text(sample_against(), wide(80)));
}

TEST(Golden, AgainstJson) {
  expect_golden("against.json", against_json(sample_against()).dump(2) + "\n");
}

}  // namespace
}  // namespace headroom::report
