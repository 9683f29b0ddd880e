// The parameters of one rank under ZeRO's third stage, as blocks: the rank's share of each, and the
// whole while it is there.
//
// Invariants:
//   1. A share is the parameter's elements, padded to equal parts. The whole is a block of its own
//      that the parameter is given (param.data = ...): views and saved tensors that were made of an
//      earlier whole keep that one.
//   2. One parameter alone is gathered into the block that becomes its whole, padding too. Several
//      go through one block that all shares lie in; each is copied out of it when the first of them
//      is waited for, and that block goes when the last of them was.
//   3. Shares on the host are copied to the device to be gathered: of one parameter alone the copy
//      is there until the gather is waited for, of several while they are joined. Those of
//      parameters that persist are made on the device.
//   4. With one rank alone nothing is sent: a parameter is a view of its share, or, of a share on
//      the host, a copy.
// Source: deepspeed/runtime/zero/partition_parameters.py (all_gather_coalesced,
// AllGatherCoalescedHandle, _allgather_params_coalesced, NoGatherHandle, _partition_param), version
// 0.19.8.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "operator/eager.h"
#include "step/recorder.h"

namespace headroom::step {

struct Zero3Parameter {
  op::Tensor leaf;  // what the model's operators take
  op::Tensor part;  // the rank's share, where it is no part of a block of several, nor the host's
  int64_t share = 0;
  bool persists = false;  // is not let go between forward and the optimizer's step
};

class Zero3Parameters {
 public:
  struct Gather;

  struct Options {
    int64_t ranks = 1;
    uint32_t stream = 0;     // that blocks of gathering belong to
    bool on_host = false;    // shares
    int64_t persistent = 0;  // elements up to which a parameter persists
  };

  // All must outlive it.
  Zero3Parameters(const Options& options, op::Eager& eager, Recorder& recorder);

  // Makes one, whole, as the model's module does.
  void add(const op::Dims& shape, op::DType type, bool is_trained);
  // Makes its share, and the whole goes.
  void take_part(size_t index);
  // From here on the shares that have no block of their own lie in this one.
  void set_flat(const op::Tensor& flat) { flat_ = flat; }

  [[nodiscard]] size_t size() const { return parameters_.size(); }
  [[nodiscard]] Zero3Parameter& operator[](size_t index) { return parameters_[index]; }
  [[nodiscard]] const Zero3Parameter& operator[](size_t index) const { return parameters_[index]; }
  [[nodiscard]] int64_t elements(size_t index) const { return parameters_[index].leaf.elements(); }

  // Indices grow. Nothing of them may be there.
  [[nodiscard]] std::shared_ptr<Gather> begin_gather(std::vector<size_t> indices);
  // They are there from here on.
  void await(Gather& gather);
  // Each into a block of its own, on the stream that computes, and all at once.
  void gather_apart(std::span<const size_t> indices);
  void let_go(size_t index);

 private:
  op::Tensor block(int64_t elements, op::DType type);
  uint32_t send(int64_t share_bytes);
  // The share, where it has to be copied from the host.
  op::Tensor copied_part(const Zero3Parameter& parameter);
  void show_part(Zero3Parameter& parameter);

  Options options_;
  op::Eager& eager_;
  Recorder& recorder_;
  std::vector<Zero3Parameter> parameters_;
  op::Tensor flat_;
  op::Tensor nothing_;  // the storage of what is not there
};

}  // namespace headroom::step
