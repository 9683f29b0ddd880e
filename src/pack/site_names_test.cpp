#include "pack/site_names.h"

#include <gtest/gtest.h>

namespace headroom::pack {
namespace {

struct Frame {
  std::string function;
  std::string file;
  int64_t line = 0;
};

// Stack 0 is the empty one.
memory::CallSites recorded(const std::vector<std::vector<Frame>>& stacks) {
  memory::CallSites made;
  for (const auto& stack : stacks) {
    std::vector<uint32_t> frames;
    for (const Frame& frame : stack) {
      frames.push_back(
          made.add_frame({made.add_text(frame.function), made.add_text(frame.file), frame.line}));
    }
    made.add_stack(frames);
  }
  return made;
}

const std::string kTorch = "/home/x/.venv/lib/python3.12/site-packages/torch/";

std::string words(const SiteNames& names, uint32_t stack) {
  return names.site(names.site_of(stack)).words();
}

TEST(SiteNames, TheInnermostFrameThatIsNotPyTorchs) {
  const SiteNames names(recorded({
      {{"torch::unwind::unwind()", "??"},
       {"at::detail::empty_generic(long)", "??"},
       {"linear", kTorch + "nn/functional.py", 12},
       {"einsum", "/home/x/.venv/lib/python3.12/site-packages/einops/einops.py", 907},
       {"wrapper", "/usr/lib/python3.12/contextlib.py", 81},
       {"forward", "/home/x/.venv/lib/python3.12/site-packages/transformers/models/opt.py", 251},
       {"main", "/home/x/train.py", 7}},
      {{"step", "/home/x/project/optim/adam.py", 80}},
      {{"step", "/home/y/project/optim/adam.py", 80}},
  }));
  EXPECT_EQ(words(names, 1), "models/opt.py:251 forward");
  EXPECT_EQ(words(names, 2), "optim/adam.py:80 step");
  EXPECT_EQ(names.site_of(2), names.site_of(3));  // the same words
  ASSERT_EQ(names.python_frames(1, 10).size(), 5U);
  EXPECT_EQ(names.python_frames(1, 2).back().function, "einsum");
}

TEST(SiteNames, WithoutAFrameOfTheUsers) {
  const SiteNames names(recorded({
      {{"linear", kTorch + "nn/functional.py", 12}, {"call", kTorch + "nn/modules/module.py", 9}},
      {{"c10::cuda::CUDACachingAllocator::Native::malloc(int)", ""},
       {"at::native::mm(at::Tensor const&)", "??"},
       {"torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)", "??"}},
      {{"at::(anonymous namespace)::structured_bmm::impl(long)", "RegisterCUDA.cpp"}},
      {{"CachingAllocator", "??"}},
      {{"at::_ops::empty_strided::call(long)", "??"}, {"at::_ops::mul_Tensor::call(long)", "??"}},
  }));
  EXPECT_EQ(words(names, 1), "nn/functional.py:12 linear");
  EXPECT_EQ(words(names, 2), "backward: MmBackward0");
  EXPECT_EQ(words(names, 3), "at::(anonymous namespace)::structured_bmm::impl");
  EXPECT_EQ(names.site_of(4), 0U);
  EXPECT_EQ(words(names, 5), "aten::mul_Tensor");
  EXPECT_EQ(names.site_of(0), 0U);
  EXPECT_EQ(names.site_of(99), 0U);
  EXPECT_TRUE(names.python_frames(99, 5).empty());
}

}  // namespace
}  // namespace headroom::pack
