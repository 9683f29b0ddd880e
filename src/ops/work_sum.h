// Adds up the kernels of operators that run on symbolic tensors (operator/eager.h); memory is of no
// interest. For one thread.
#pragma once

#include <cstdint>

#include "operator/sink.h"

namespace headroom::ops {

class WorkSum final : public op::Sink {
 public:
  uint32_t on_allocate(int64_t /*bytes*/) override { return next_++; }
  void on_free(uint32_t /*buffer*/) override {}
  void on_saved(uint32_t /*buffer*/) override {}
  void on_module(uint32_t /*module*/) override {}
  void on_kernel(const op::KernelWork& kernel) override {
    flops += kernel.flops;
    bytes += static_cast<double>(kernel.bytes_read) + static_cast<double>(kernel.bytes_written);
    written += static_cast<double>(kernel.bytes_written);
  }
  double flops = 0;
  double written = 0;
  double bytes = 0;

 private:
  uint32_t next_ = 0;
};

}  // namespace headroom::ops
