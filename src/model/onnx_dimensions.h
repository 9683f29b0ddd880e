// OpenDimensions: how large the dimensions are that an ONNX file leaves open.
//
// One name has one size, wherever it stands. A name that the setting knows has that size; a sum of
// names and numbers ("past_sequence_length + sequence_length") that of its parts; what was there
// before ("past...") is none. Of the others a name says what it is ("batch", "sequence"), else its
// place does: a dimension that is always the first is the batch, the second of at most three is the
// sequence. Of what is neither (the height of an image) nobody can know the size but the user.
// Internal to the running of ONNX graphs; not synchronised.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/onnx_run.h"

namespace headroom::model {

class OpenDimensions {
 public:
  OpenDimensions(const OnnxModel& model, const OnnxSetting& setting);

  // The size of a dimension at `place` of `of`, which has `rank`. Throws op::Impossible where only
  // the user knows it.
  int64_t size_of(const OnnxDimension& dimension, size_t place, size_t rank, const std::string& of);
  // What was taken for what, in the order in which it was asked for.
  [[nodiscard]] const std::vector<OnnxOpenSize>& taken() const { return taken_; }

 private:
  using Role = OnnxOpenSize::Role;
  // Where a name stands among the inputs.
  struct Places {
    bool is_ever_second = false;  // of at most three
    bool is_ever_later = false;   // than the first, otherwise
  };

  static Places places_at(size_t place, size_t rank);
  OnnxOpenSize of_name(const std::string& name, std::optional<size_t> place, size_t rank);
  std::optional<OnnxOpenSize> sum_of(const std::string& name);
  [[nodiscard]] Role role_of(const std::string& name, std::optional<size_t> place,
                             size_t rank) const;
  OnnxOpenSize keep(OnnxOpenSize open);
  [[nodiscard]] std::string to_be_given(const std::string& name) const;

  const OnnxSetting& setting_;
  std::unordered_map<std::string_view, Places> places_;
  std::vector<std::string_view> names_;  // of the inputs' dimensions, each once, in order
  std::unordered_map<std::string, OnnxOpenSize> known_;
  std::vector<OnnxOpenSize> taken_;
};

}  // namespace headroom::model
