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
formats::TorchSnapshot snapshot(const std::vector<std::vector<Frame>>& stacks) {
  formats::TorchSnapshot made;
  made.stacks.emplace_back();
  for (const auto& stack : stacks) {
    made.stacks.emplace_back();
    for (const Frame& frame : stack) {
      const auto text = static_cast<uint32_t>(made.texts.size());
      made.texts.push_back(frame.function);
      made.texts.push_back(frame.file);
      made.stacks.back().push_back(static_cast<uint32_t>(made.frames.size()));
      made.frames.push_back({text, text + 1, frame.line});
    }
  }
  return made;
}

const std::string kTorch = "/home/x/.venv/lib/python3.12/site-packages/torch/";

std::string words(const SiteNames& names, uint32_t stack) {
  return names.site(names.site_of(stack)).words();
}

TEST(SiteNames, TheInnermostFrameThatIsNotPyTorchs) {
  const SiteNames names(snapshot({
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
  const SiteNames names(snapshot({
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

// Numbers out of range are no frames.
TEST(SiteNames, AHostileSnapshot) {
  formats::TorchSnapshot made;
  made.stacks = {{}, {7, 0}};
  made.frames = {{9, 9, -1}};
  EXPECT_EQ(SiteNames(made).site_of(1), 0U);
}

}  // namespace
}  // namespace headroom::pack
