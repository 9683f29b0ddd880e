#include "formats/read_trace.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace headroom::formats {
namespace {

using namespace std::string_view_literals;

// A trace in a wrapping that is not undone here: the Error says which, and what takes it off.
TEST(ReadTrace, SaysWhatAFileIsWrappedIn) {
  const struct {
    std::string bytes;
    const char* message;
    const char* hint;
  } files[] = {
      {std::string("\x28\xB5\x2F\xFD\x04\x58"sv), "zstd", "zstd -dc"},
      {std::string("\xFD\x37zXZ\0\0"sv), "xz", "xz -dc"},
      {"BZh91AY&SY", "bzip2", "bzip2 -dc"},
      {std::string("PK\x03\x04\x14"sv), "ZIP", "unzip"},
      {std::string(257, '\0').replace(0, 10, "trace.json") + "ustar", "tar", "tar xf"},
      {std::string("\xFF\xFE{\0"sv), "UTF-16", "iconv"},
      {"id,lower,upper", "no profiler", "PyTorch"},
  };
  const std::string path = testing::TempDir() + "headroom_read_trace_test";
  for (const auto& file : files) {
    ASSERT_TRUE(write_file_atomic(path, file.bytes));
    const Result<Trace> trace = read_trace(path);
    ASSERT_FALSE(trace) << file.message;
    EXPECT_NE(trace.error().message.find(file.message), std::string::npos) << trace.error().message;
    EXPECT_NE(trace.error().hint.find(file.hint), std::string::npos) << trace.error().hint;
  }
}

}  // namespace
}  // namespace headroom::formats
