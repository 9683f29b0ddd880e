// A small plan with one of everything (tests only).
#pragma once

#include "memory/plan/memory_plan.h"

namespace headroom::memory {

inline MemoryPlan sample_plan() {
  MemoryPlan plan;
  plan.alignment = 512;
  plan.bytes = 8192;
  plan.streams = {{{0, 6144}, 1024, 512}, {{6144, 2048}, 0, 512}};
  plan.persistent = {{0, 500, 0}, {0, 512, 512}};
  SignaturePlan first;
  first.iterations = 3;
  first.slots = {
      {0, 2, 900, 1000, 1536, false},
      {0, 3, 2048, 2048, 2560, false},
      {0, 3, 512, 512, 1536, false},
      {1, 4, 100, 100, 6144, true},
  };
  first.spaces = {{0, 0, 2, {{4608, 1536}}}, {0, 2, 3, {{2048, 512}, {4608, 1024}}}};
  first.places = {{0, 1, 0, 0}, {0, 1, 1, 0}, {0, 2, 0, 1}};
  SignaturePlan second;
  second.iterations = 1;
  second.slots = {{0, 1, 4096, 4096, 1536, false}, {0, 2, 10, 10, 1024, true}};
  plan.signatures = {first, second};
  return plan;
}

// The sample with a slot behind the last of its second signature that has no bytes in it.
inline MemoryPlan plan_with_slot_elsewhere() {
  MemoryPlan plan = sample_plan();
  PlannedSlot slot{0, 3, 1 << 20, 1 << 20, 0};
  slot.is_elsewhere = true;
  plan.signatures[1].slots.push_back(slot);
  plan.signatures[1].slots[1].ends = 3;  // carried
  return plan;
}

// Two streams: the first one's last two slots are guests in the cells of the second, one in each.
inline MemoryPlan lending_plan() {
  MemoryPlan plan;
  plan.alignment = 512;
  plan.bytes = 4096;
  plan.streams = {{{0, 2048}, 0, 0}, {{2048, 2048}, 0, 0}};
  SignaturePlan signature;
  signature.iterations = 3;
  signature.slots = {
      {0, 6, 1000, 1000, 0, false},          {1, 3, 1001, 1001, 2048, false},
      {1, 4, 1002, 1002, 3072, false},       {0, 5, 1003, 1003, 1024, false},
      {0, 6, 1004, 1004, 2048, false, true}, {0, 6, 1005, 1005, 3072, false, true},
  };
  plan.signatures = {signature};
  return plan;
}

// The same where the program itself has the guests come behind the lender, and the other way round.
inline MemoryPlan plan_in_order() {
  MemoryPlan plan = lending_plan();
  for (PlannedSlot& slot : plan.signatures[0].slots) slot.is_in_order = slot.is_guest;
  return plan;
}

}  // namespace headroom::memory
