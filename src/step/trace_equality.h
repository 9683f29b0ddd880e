// For tests: two traces are the same, field by field.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "step/trace.h"

namespace headroom::step {

inline void expect_equal(const StepTrace& a, const StepTrace& b) {
  for (size_t i = 0; i < std::min(a.memory.events.size(), b.memory.events.size()); ++i) {
    ASSERT_EQ(a.memory.events[i].kind, b.memory.events[i].kind) << i;
    ASSERT_EQ(a.memory.events[i].buffer, b.memory.events[i].buffer) << i;
    ASSERT_EQ(a.memory.events[i].operation, b.memory.events[i].operation) << i;
  }
  ASSERT_EQ(a.memory.events.size(), b.memory.events.size());
  EXPECT_EQ(a.memory.cache_emptied, b.memory.cache_emptied);
  EXPECT_EQ(a.memory.stream_uses, b.memory.stream_uses);
  EXPECT_EQ(a.memory.stream_progress, b.memory.stream_progress);
  ASSERT_EQ(a.memory.buffers.size(), b.memory.buffers.size());
  for (size_t i = 0; i < a.memory.buffers.size(); ++i) {
    ASSERT_EQ(a.memory.buffers[i].requested_bytes, b.memory.buffers[i].requested_bytes) << i;
    ASSERT_EQ(a.memory.buffers[i].category, b.memory.buffers[i].category) << i;
    ASSERT_EQ(a.memory.buffers[i].label, b.memory.buffers[i].label) << i;
  }
  ASSERT_EQ(a.calls.size(), b.calls.size());
  for (size_t i = 0; i < a.calls.size(); ++i) {
    ASSERT_EQ(a.calls[i].kind, b.calls[i].kind) << i;
    ASSERT_EQ(a.calls[i].phase, b.calls[i].phase) << i;
    ASSERT_EQ(a.calls[i].module, b.calls[i].module) << i;
    ASSERT_EQ(a.calls[i].flops, b.calls[i].flops) << i;
    ASSERT_EQ(a.calls[i].bytes_read, b.calls[i].bytes_read) << i;
    ASSERT_EQ(a.calls[i].bytes_written, b.calls[i].bytes_written) << i;
  }
  ASSERT_EQ(a.phases.size(), b.phases.size());
  for (size_t i = 0; i < a.phases.size(); ++i) {
    ASSERT_EQ(a.phases[i].phase, b.phases[i].phase) << i;
    ASSERT_EQ(a.phases[i].iteration, b.phases[i].iteration) << i;
    ASSERT_EQ(a.phases[i].first_event, b.phases[i].first_event) << i;
    ASSERT_EQ(a.phases[i].first_call, b.phases[i].first_call) << i;
  }
  EXPECT_EQ(a.modules, b.modules);
  EXPECT_EQ(a.saved_bytes, b.saved_bytes);
  EXPECT_EQ(a.peak_live_bytes, b.peak_live_bytes);
  EXPECT_EQ(a.cut_short, b.cut_short);
}

}  // namespace headroom::step
