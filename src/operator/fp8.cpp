#include "operator/fp8.h"

#include <array>
#include <utility>

namespace headroom::op {

namespace {

constexpr int kAda = 89;
constexpr int kHopper = 90;
constexpr int kBlackwell = 100;
constexpr int kWorkstations = 120;  // Blackwell's, and desktops'
constexpr int kNext = 130;

constexpr std::array kNames{std::pair{Fp8Recipe::delayed, std::string_view("delayed")},
                            std::pair{Fp8Recipe::tensorwise, std::string_view("tensorwise")},
                            std::pair{Fp8Recipe::blockwise, std::string_view("blockwise")},
                            std::pair{Fp8Recipe::mxfp8, std::string_view("mxfp8")}};

int64_t parts(int64_t size, int64_t part) { return (size + part - 1) / part; }
int64_t rounded(int64_t size, int64_t multiple) { return parts(size, multiple) * multiple; }

Fp8Scales block_scales(int64_t rows, int64_t columns, bool is_weight) {
  constexpr int64_t kBlock = 128;
  constexpr int64_t kFloat = 4;
  constexpr int64_t kMultiple = 4;
  if (is_weight) {
    return {kFloat * parts(rows, kBlock) * rounded(parts(columns, kBlock), kMultiple),
            kFloat * parts(columns, kBlock) * rounded(parts(rows, kBlock), kMultiple)};
  }
  return {kFloat * parts(columns, kBlock) * rounded(rows, kMultiple),
          kFloat * parts(rows, kBlock) * rounded(columns, kMultiple)};
}

// An exponent each, padded to the tiles that products read.
Fp8Scales exponents(int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 32;
  constexpr int64_t kTile = 128;
  constexpr int64_t kOfTile = 4;
  return {rounded(rows, kTile) * rounded(parts(columns, kBlock), kOfTile),
          rounded(parts(rows, kBlock), kOfTile) * rounded(columns, kTile)};
}

}  // namespace

std::string_view name_of(Fp8Recipe recipe) {
  for (const auto& [known, name] : kNames) {
    if (known == recipe) return name;
  }
  return "none";
}

Fp8Recipe fp8_recipe_of(std::string_view name) {
  for (const auto& [recipe, known] : kNames) {
    if (known == name) return recipe;
  }
  return Fp8Recipe::none;
}

bool multiplies_fp8(Fp8Recipe recipe, int compute_capability) {
  switch (recipe) {
    case Fp8Recipe::blockwise:
      return compute_capability >= kHopper && compute_capability < kBlackwell;
    case Fp8Recipe::mxfp8:
      return compute_capability >= kBlackwell && compute_capability < kWorkstations;
    default:
      return compute_capability >= kAda;
  }
}

bool keeps_fp8_twice(Fp8Recipe recipe, int compute_capability) {
  const bool reads_either_way =
      (compute_capability >= kBlackwell && compute_capability < kWorkstations) ||
      compute_capability >= kNext;
  return !has_one_scale(recipe) || !reads_either_way;
}

// assert_dim_for_fp8_exec wants 8 rows and 16 columns of inputs and weights. What a product sums
// over are 16 (CanonicalizeGemmInput's leading dimensions): the outputs and the gathered rows, too,
// but these only where products read rows alone. MXFP8Quantizer takes whole blocks alone, and so
// does, where ranks gather, Float8BlockQuantizer (is_quantizable).
Fp8Multiples fp8_multiples(Fp8Recipe recipe, bool keeps_twice) {
  Fp8Multiples multiples;
  if (recipe == Fp8Recipe::mxfp8) return {32, 32, 32, 32};
  if (recipe == Fp8Recipe::blockwise) multiples.inputs = multiples.rows = 128;
  if (!keeps_twice) multiples.gathered_rows = multiples.rows;
  return multiples;
}

Fp8Scales fp8_scales(Fp8Recipe recipe, int64_t rows, int64_t columns, bool is_weight) {
  switch (recipe) {
    case Fp8Recipe::blockwise:
      return block_scales(rows, columns, is_weight);
    case Fp8Recipe::mxfp8:
      return exponents(rows, columns);
    default:
      return {4, 0};
  }
}

}  // namespace headroom::op
