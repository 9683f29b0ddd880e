#include "formats/oom_message.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headroom::formats {
namespace {

OomMessage only(std::string_view text) {
  const auto messages = parse_oom_messages(text, "test");
  EXPECT_TRUE(messages) << text;
  if (!messages) return {};
  EXPECT_EQ(messages->size(), 1U);
  return messages->front();
}

Bytes gib(double value) { return Bytes(static_cast<int64_t>(value * kGiB + 0.5)); }
Bytes mib(double value) { return Bytes(static_cast<int64_t>(value * kMiB + 0.5)); }

TEST(OomMessage, ToTorch20) {
  const OomMessage message = only(
      "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 3; 6.00 GiB total "
      "capacity; 781.59 MiB already allocated; 3.03 GiB free; 4.50 GiB allowed; 1.24 GiB reserved "
      "in total by PyTorch) If reserved memory is >> allocated memory try setting "
      "max_split_size_mb to avoid fragmentation.");
  EXPECT_EQ(message.source, OomSource::torch);
  EXPECT_EQ(message.backend, "CUDA");
  EXPECT_EQ(message.device, 3);
  EXPECT_EQ(message.tried, gib(2.26));
  EXPECT_EQ(message.total, gib(6));
  EXPECT_EQ(message.allocated, mib(781.59));
  EXPECT_EQ(message.free, gib(3.03));
  EXPECT_EQ(message.allowed, gib(4.5));
  EXPECT_EQ(message.reserved(), gib(1.24));
  EXPECT_TRUE(message.processes.empty());
}

TEST(OomMessage, WhenReservedWasCalledCached) {
  const OomMessage message = only(
      "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.50 GiB "
      "already allocated; 4.56 MiB free; 0 bytes cached)");
  EXPECT_EQ(message.unallocated, Bytes(0));
  EXPECT_EQ(message.reserved(), gib(6.5));
}

TEST(OomMessage, From21WithProcesses) {
  for (const std::string spelling : {"capacity", "capacty"}) {
    const OomMessage message = only(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 1 has a "
        "total " +
        spelling +
        " of 93.02 GiB of which 1.18 GiB is free. Process 2752205 has 11.00 GiB memory in use. "
        "Including non-PyTorch memory, this process has 80.82 GiB memory in use. 90.00 GiB "
        "allowed; Of the allocated memory 70.63 GiB is allocated by PyTorch, with 22.00 MiB "
        "allocated in private pools (e.g., CUDA Graphs), and 120.54 MiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.");
    EXPECT_EQ(message.device, 1);
    EXPECT_EQ(message.tried, gib(1.25));
    EXPECT_EQ(message.total, gib(93.02));
    EXPECT_EQ(message.free, gib(1.18));
    EXPECT_EQ(message.allocated, gib(70.63));
    EXPECT_EQ(message.unallocated, mib(120.54));
    EXPECT_EQ(message.private_pools, mib(22));
    EXPECT_EQ(message.allowed, gib(90));
    ASSERT_EQ(message.processes.size(), 2U);
    EXPECT_EQ(message.processes[0].pid, 2752205);
    EXPECT_EQ(message.processes[0].used, gib(11));
    EXPECT_FALSE(message.processes[1].pid);
    EXPECT_EQ(message.processes[1].used, gib(80.82));
  }
}

TEST(OomMessage, XpuBeforeItKnewWhatIsFree) {
  const OomMessage message = only(
      "XPU out of memory. Tried to allocate 512 bytes. GPU 0 has a total capacity of 15.91 GiB. Of "
      "the allocated memory 15.00 GiB is allocated by PyTorch, and 1.00 KiB is reserved by PyTorch "
      "but unallocated. Please use `empty_cache` to release all unoccupied cached memory.");
  EXPECT_EQ(message.backend, "XPU");
  EXPECT_EQ(message.tried, Bytes(512));
  EXPECT_FALSE(message.free);
  EXPECT_EQ(message.unallocated, Bytes(1024));
}

TEST(OomMessage, OutOfALogWithPrefixesAndBrokenLines) {
  const OomMessage message = only(
      "Traceback (most recent call last):\n  File \"train.py\", line 7\n"
      "[rank3]: torch.OutOfMemoryError: \x1b[31mCUDA out of memory.\x1b[0m Tried to allocate\r\n"
      "[rank3]: 304.00 MiB.  GPU 0 has a total capacity of\n> 94.97 GiB of which 218.81 MiB is\n"
      "\xE2\x94\x82 free. Including non-PyTorch memory, this process has 93.84 GiB memory in\n"
      "use. Of the allocated memory 91.19 GiB is allocated by PyTorch, and 744.36 MiB is\n"
      "reserved by PyTorch but unallocated.");
  EXPECT_EQ(message.line, 3);
  EXPECT_EQ(message.tried, mib(304));
  EXPECT_EQ(message.total, gib(94.97));
  EXPECT_EQ(message.free, mib(218.81));
  ASSERT_EQ(message.processes.size(), 1U);
  EXPECT_EQ(message.processes[0].used, gib(93.84));
  EXPECT_EQ(message.unallocated, mib(744.36));
}

TEST(OomMessage, TheSameMessageTwiceIsCounted) {
  const std::string one =
      "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
      "which 0 bytes is free. ";
  const auto messages =
      parse_oom_messages(one + "\nlog\n" + one + "CUDA error: out of memory", "t");
  ASSERT_TRUE(messages);
  ASSERT_EQ(messages->size(), 2U);
  EXPECT_EQ(messages->front().count, 2);
  EXPECT_EQ(messages->back().source, OomSource::cuda_runtime);
}

TEST(OomMessage, ThoseWithoutFigures) {
  EXPECT_EQ(only("RuntimeError: CUDA driver error: out of memory").source, OomSource::cuda_driver);
  EXPECT_EQ(
      only("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`").source,
      OomSource::cublas);
  EXPECT_EQ(only("cuDNN error: CUDNN_STATUS_ALLOC_FAILED").source, OomSource::cudnn);
  EXPECT_EQ(only("ncclUnhandledCudaError: Last error:\nCuda failure 2 'out of memory'").source,
            OomSource::nccl);
  const OomMessage host = only(
      "[enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you tried to allocate 65536 bytes. Error code 12 (Cannot allocate memory)");
  EXPECT_EQ(host.source, OomSource::host);
  EXPECT_EQ(host.tried, Bytes(65536));
}

TEST(OomMessage, WhatNobodyCouldMeanIsLeftOut) {
  const OomMessage message = only(
      "CUDA out of memory. Tried to allocate 1e9 GiB. GPU -1 has a total capacity of GiB of which "
      "99999999999999999999999 GiB is free. Process x has 1.00 GiB memory in use. Process 7 has "
      "17179869184.00 GiB memory in use. 1.2.3 GiB is allocated by PyTorch");
  EXPECT_FALSE(message.tried);
  EXPECT_FALSE(message.device);
  EXPECT_FALSE(message.total);
  EXPECT_FALSE(message.free);
  EXPECT_FALSE(message.allocated);
  ASSERT_EQ(message.processes.size(), 1U);  // NVML's "not known": kept, and judged by who explains
  EXPECT_GT(message.processes[0].used, Bytes(int64_t{1} << 60));
}

// Cut anywhere: an error, or the figures that are whole, and it says that it is cut.
TEST(OomMessage, CutAtEveryByte) {
  const std::string_view wholes[] = {
      "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 13; 6.00 GiB total capacity; 781.59 MiB "
      "already allocated; 3.03 GiB free; 4.50 GiB allowed; 1.24 GiB reserved in total by PyTorch",
      "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 10; 7.93 GiB total capacity; 6.50 GiB "
      "already allocated; 4.56 MiB free; 128 bytes cached)",
      "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 12 has a total capacity of 93.02 GiB of "
      "which 1.18 GiB is free. Process 2752205 has 11.00 GiB memory in use. Including non-PyTorch "
      "memory, this process has 80.82 GiB memory in use. 90.00 GiB allowed; Of the allocated "
      "memory 70.63 GiB is allocated by PyTorch, with 22.00 MiB allocated in private pools (e.g., "
      "CUDA Graphs), and 120.54 MiB is reserved by PyTorch but unallocated",
      "DefaultCPUAllocator: can't allocate memory: you tried to allocate 65536 bytes"};
  for (const std::string_view text : wholes) {
    const OomMessage whole = only(text);
    EXPECT_FALSE(whole.is_cut) << text;
    size_t cut = 0;
    for (size_t length = 0; length < text.size(); ++length) {
      const auto read = parse_oom_messages(text.substr(0, length), "log");
      if (!read) {
        EXPECT_EQ(read.error().where, "log");
        EXPECT_FALSE(read.error().hint.empty());
        continue;
      }
      ++cut;
      ASSERT_EQ(read->size(), 1U) << length;
      const OomMessage& part = read->front();
      EXPECT_TRUE(part.is_cut) << text.substr(0, length);
      const auto is_of_whole = [](const auto& mine, const auto& all) {
        return !mine || mine == all;
      };
      EXPECT_TRUE(is_of_whole(part.device, whole.device)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.tried, whole.tried)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.total, whole.total)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.free, whole.free)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.allocated, whole.allocated)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.unallocated, whole.unallocated)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.private_pools, whole.private_pools)) << text.substr(0, length);
      EXPECT_TRUE(is_of_whole(part.allowed, whole.allowed)) << text.substr(0, length);
      for (const OomProcess& process : part.processes) {
        EXPECT_NE(std::find(whole.processes.begin(), whole.processes.end(), process),
                  whole.processes.end())
            << text.substr(0, length);
      }
    }
    EXPECT_GT(cut, 8U) << text;
  }
}

TEST(OomMessage, AnythingElseIsAnError) {
  EXPECT_FALSE(parse_oom_messages("", "t"));
  EXPECT_FALSE(parse_oom_messages("all is well", "t"));
}

}  // namespace
}  // namespace headroom::formats
