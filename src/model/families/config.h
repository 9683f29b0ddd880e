// ConfigReader: a config.json read key by key, with transformers' defaults and with the bounds that
// keep every product of sizes far from overflow.
//
// The first thing wrong is kept and everything after it reads as its default, so a family reads all
// its keys and asks once: `if (auto error = reader.error()) return *error;`. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "model/blocks/activation.h"
#include "model/options.h"
#include "text/json.h"

namespace headroom::model {

inline constexpr int64_t kSizeMax = int64_t{1} << 24;
inline constexpr int64_t kHeadsMax = int64_t{1} << 14;
inline constexpr int64_t kLayersMax = 1024;

class ConfigReader {
 public:
  // Configs name some keys in two ways (n_embd, hidden_size); the first that is there counts.
  using Names = std::initializer_list<const char*>;

  explicit ConfigReader(const text::JsonView& json) : json_(json) {}

  // A size of at least 1; required where there is no default.
  int64_t size(Names names, std::optional<int64_t> otherwise = {}, int64_t max = kSizeMax);
  // A number of things, or one that means none.
  int64_t count(const char* name, int64_t otherwise, int64_t min, int64_t max);
  bool flag(const char* name, bool otherwise);
  // There, and null: transformers then takes what follows from other keys, and a family's own value
  // only where the key is missing.
  [[nodiscard]] bool is_null(const char* name) const;
  double number(const char* name, double otherwise, double min, double max);
  // The probability of a dropout, 0 outside of training.
  double dropout(const char* name, double otherwise, const BuildOptions& options);
  Activation activation(const char* name, Activation otherwise);

  // Fails where a sequence is longer than a table of positions.
  void require_positions(const BuildOptions& options, int64_t positions);
  // Fails with this message at the key unless the condition holds.
  void require(bool condition, const char* name, const std::string& message);
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  // What was read otherwise, or `otherwise` and its error.
  template <typename T>
  T take(Result<T> result, T otherwise) {
    if (result) return *result;
    if (!error_) error_ = result.error();
    return otherwise;
  }

 private:
  const text::JsonView& json_;
  std::optional<Error> error_;
};

// A class for each label that the config names, two where it names none.
[[nodiscard]] int64_t read_classes(ConfigReader& in, const text::JsonView& json);

}  // namespace headroom::model
