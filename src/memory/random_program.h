// RapidCheck generators of allocation sizes and programs (tests only).
#pragma once

#include <rapidcheck.h>

#include <vector>

#include "base/units.h"
#include "memory/allocator_contract.h"

namespace headroom::memory::contract {

// Sizes near the borders of the rules, and between them.
inline rc::Gen<int64_t> any_size() {
  return rc::gen::oneOf(
      rc::gen::inRange<int64_t>(1, 4096), rc::gen::inRange<int64_t>(1, kMiB + 4096),
      rc::gen::inRange<int64_t>(kMiB - 1024, 12 * kMiB), rc::gen::inRange<int64_t>(1, 90 * kMiB),
      rc::gen::map(rc::gen::inRange<int64_t>(1, 40), [](int64_t n) { return n * kMiB; }),
      rc::gen::map(rc::gen::inRange<int64_t>(1, 9), [](int64_t n) { return n * kMiB / 4; }));
}

inline rc::Gen<Step> any_step() {
  const auto kind = rc::gen::weightedElement<Step::Kind>(
      {{10, Step::Kind::allocate}, {9, Step::Kind::free}, {1, Step::Kind::empty_cache}});
  return rc::gen::build<Step>(
      rc::gen::set(&Step::kind, kind), rc::gen::set(&Step::bytes, any_size()),
      rc::gen::set(&Step::stream, rc::gen::weightedElement<uint32_t>({{4, 0}, {1, 1}})),
      rc::gen::set(&Step::pick, rc::gen::inRange<uint32_t>(0, 1000)));
}

inline rc::Gen<std::vector<Step>> any_program(size_t most) {
  return rc::gen::mapcat(rc::gen::inRange<size_t>(1, most), [](size_t length) {
    return rc::gen::container<std::vector<Step>>(length, any_step());
  });
}

inline void showValue(const Step& step, std::ostream& out) {
  const char* const names[] = {"allocate", "free", "empty_cache"};
  out << names[static_cast<int>(step.kind)] << "(" << step.bytes << ", stream " << step.stream
      << ", pick " << step.pick << ")";
}

}  // namespace headroom::memory::contract
