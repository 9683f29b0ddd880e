#include "pack/oom.h"

#include <gtest/gtest.h>

namespace headroom::pack {
namespace {

OomCase only(std::string_view text) {
  const auto answer = explain_oom(text, "test", device::DeviceCatalogue::built_in());
  EXPECT_TRUE(answer);
  if (!answer) return {};
  EXPECT_EQ(answer->cases.size(), 1U);
  return answer->cases.front();
}

std::string message(const std::string& tried, const std::string& free, const std::string& processes,
                    const std::string& allocated, const std::string& rest) {
  return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " + tried +
         ". GPU 0 has a total capacity of 79.25 GiB of which " + free + " is free. " + processes +
         "Of the allocated memory " + allocated + " is allocated by PyTorch, " + rest;
}

// Wrapped at blanks, within a box.
std::string boxed(const std::string& words, const std::string& bar, size_t width) {
  std::string lines;
  size_t at = 0;
  while (at < words.size()) {
    size_t end = std::min(at + width, words.size());
    if (end < words.size()) end = std::max(words.rfind(' ', end), at + 1);
    lines += bar + " " + words.substr(at, end - at) + " " + bar + "\n";
    at = end;
  }
  return lines;
}

const std::string kThis = "Including non-PyTorch memory, this process has ";

const OomHolder* holder(const OomCase& one, const std::string& name) {
  for (const OomHolder& each : one.holders) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

Bytes gib(double value) { return Bytes(static_cast<int64_t>(value * kGiB + 0.5)); }

TEST(Oom, Fragmentation) {
  const OomCase one =
      only(message("4.00 GiB", "1.00 GiB", kThis + "78.25 GiB memory in use. ", "60.00 GiB",
                   "and 17.50 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::fragmentation);
  EXPECT_EQ(one.culprit_bytes, gib(17.5));
  EXPECT_EQ(one.short_by->expected, gib(3));
  EXPECT_LT(one.short_by->low, one.short_by->expected);
  EXPECT_EQ(holder(one, "outside")->bytes, gib(0.75));
  EXPECT_NE(one.advice[0].find("expandable_segments"), std::string::npos);
  EXPECT_EQ(one.verdict.find("alone"), std::string::npos);
}

TEST(Oom, FragmentationThatIsNotEnoughByItself) {
  const OomCase one =
      only(message("20.00 GiB", "1.00 GiB",
                   kThis + "62.25 GiB memory in use. Process 7 has 16.00 GiB memory in use. ",
                   "50.00 GiB", "and 12.00 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::other_process);
  EXPECT_NE(one.verdict.find("alone it does not make up"), std::string::npos);
}

TEST(Oom, TheModelItself) {
  const OomCase one =
      only(message("256.00 MiB", "16.88 MiB", kThis + "79.23 GiB memory in use. ", "78.40 GiB",
                   "and 57.79 MiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::model);
  EXPECT_EQ(one.culprit_bytes, gib(78.40));
}

TEST(Oom, AnotherProcess) {
  const OomCase one = only(
      message("2.00 GiB", "0.50 GiB",
              "Process 4242 has 40.00 GiB memory in use. " + kThis + "38.75 GiB memory in use. ",
              "37.50 GiB", "and 0.50 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::other_process);
  EXPECT_EQ(one.culprit_bytes, gib(40));
  EXPECT_NE(one.advice[0].find("4242 (40.00 GiB)"), std::string::npos);
}

// Inside a container this process is listed under the host's number.
TEST(Oom, AContainersProcessIsThisOne) {
  const OomCase one =
      only(message("256.00 MiB", "16.88 MiB", "Process 3652628 has 79.00 GiB memory in use. ",
                   "78.40 GiB", "and 57.79 MiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::model);
  EXPECT_EQ(holder(one, "process 3652628"), nullptr);
  ASSERT_NE(holder(one, "outside"), nullptr);
  ASSERT_EQ(one.notes.size(), 1U);
  EXPECT_NE(one.notes[0].find("3652628"), std::string::npos);
}

TEST(Oom, NcclAndContext) {
  const OomCase one =
      only(message("1.00 GiB", "0.25 GiB", kThis + "79.00 GiB memory in use. ", "65.00 GiB",
                   "and 0.50 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::outside);
  // 13.5 GiB, less the most that a context of such a device takes.
  EXPECT_GT(*one.culprit_bytes, gib(12));
  EXPECT_LT(*one.culprit_bytes, gib(13));
}

TEST(Oom, CudaGraphs) {
  const OomCase one =
      only(message("1.00 GiB", "0.25 GiB", kThis + "79.00 GiB memory in use. ", "77.00 GiB",
                   "with 9.00 GiB allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is "
                   "reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::private_pools);
  EXPECT_EQ(holder(one, "tensors")->bytes, gib(68));
}

TEST(Oom, OneRequestLargerThanTheDevice) {
  const OomCase one =
      only(message("130206.04 GiB", "16.57 GiB", kThis + "6.97 GiB memory in use. ", "5.45 GiB",
                   "and 1.17 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::request);
}

// Larger than all other tensors, and no waste is enough for it.
TEST(Oom, OneRequestLargerThanAllTheRest) {
  const OomCase one =
      only(message("60.00 GiB", "30.00 GiB", kThis + "49.25 GiB memory in use. ", "28.00 GiB",
                   "and 20.75 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::request);
}

TEST(Oom, ALimit) {
  const OomCase one = only(message("2.00 GiB", "30.00 GiB", "40.00 GiB allowed; ", "38.90 GiB",
                                   "and 0.10 GiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::memory_fraction);
  EXPECT_EQ(one.short_by->expected, gib(1));
}

// What is allowed and what is reserved are the same to the rounding of the message's figures.
TEST(Oom, ALimitThatRoundingHides) {
  const OomCase one = only(message("2.00 MiB", "70.00 GiB", "1.05 GiB allowed; ", "1017.01 MiB",
                                   "and 54.99 MiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::memory_fraction);
}

TEST(Oom, NobodyWhereEnoughWasFree) {
  for (
      const char* const text :
      {"CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB "
       "already allocated; 9.28 GiB free; 4.68 MiB cached)",
       "HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a total capacity of 288.00 GiB of "
       "which 203.00 GiB is free. Of the allocated memory 68.00 GiB is allocated by PyTorch, and "
       "15.00 GiB is reserved by PyTorch but unallocated."}) {
    const OomCase one = only(text);
    EXPECT_EQ(one.culprit, OomCulprit::was_free);
    EXPECT_LE(one.short_by->high.count, 0);
    EXPECT_EQ(one.verdict.find("fragmentation"), std::string::npos);
  }
}

TEST(Oom, TheOldWordingDoesNotNameProcesses) {
  const OomCase one = only(
      "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 24.00 GiB total capacity; 8.00 GiB "
      "already allocated; 1.00 GiB free; 8.25 GiB reserved in total by PyTorch)");
  EXPECT_EQ(one.culprit, OomCulprit::not_listed);
  EXPECT_EQ(holder(one, "not_listed")->bytes, gib(14.75));
}

TEST(Oom, MoreThanTheDeviceIsTheHostsMemory) {
  const OomCase one = only(
      "CUDA out of memory. Tried to allocate 2.11 GiB (GPU 0; 8.00 GiB total capacity; 19.84 GiB "
      "already allocated; 0 bytes free; 22.26 GiB reserved in total by PyTorch)");
  EXPECT_EQ(one.culprit, OomCulprit::fragmentation);
  ASSERT_FALSE(one.notes.empty());
  EXPECT_NE(one.notes.back().find("pages into the host"), std::string::npos);
}

// NVML says 2^64 - 1 bytes where it does not know.
TEST(Oom, ProcessesWithoutAFigureAreLeftOut) {
  const OomCase one =
      only(message("256.00 MiB", "16.88 MiB", "Process 1 has 17179869184.00 GiB memory in use. ",
                   "78.40 GiB", "and 57.79 MiB is reserved by PyTorch but unallocated."));
  EXPECT_EQ(one.culprit, OomCulprit::model);
  EXPECT_NE(one.notes[0].find("does not know"), std::string::npos);
}

TEST(Oom, WithoutFigures) {
  EXPECT_EQ(
      only("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.").culprit,
      OomCulprit::host);
  EXPECT_EQ(only("Cuda failure 2 'out of memory'").culprit, OomCulprit::outside);
  EXPECT_EQ(only("CUDA error: out of memory").culprit, OomCulprit::not_told);
  EXPECT_EQ(only("CUDA out of memory. Tried to allocate ").culprit, OomCulprit::not_told);
}

// The wordings of PyTorch before and after its units were named rightly.
TEST(Oom, AppleGpusHaveTheirOwnHolders) {
  const OomCase model = only(
      "RuntimeError: MPS backend out of memory (MPS allocated: 15.72 GiB, other allocations: 2.41 "
      "MiB, max allowed: 18.13 GiB). Tried to allocate 5.81 GiB on private pool. Use "
      "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations");
  EXPECT_EQ(model.culprit, OomCulprit::model);
  EXPECT_EQ(model.message.backend, "MPS");
  EXPECT_EQ(model.short_by->expected.count, gib(15.72).count +
                                                static_cast<int64_t>(2.41 * kMiB + 0.5) +
                                                gib(5.81).count - gib(18.13).count);
  const OomCase beside = only(
      "MPS backend out of memory (MPS allocated: 5.50 GB, other allocations: 14.76 GB, max "
      "allowed: "
      "20.40 GB). Tried to allocate 147.24 MB on private pool.");
  EXPECT_EQ(beside.culprit, OomCulprit::outside);
  EXPECT_EQ(beside.culprit_bytes, gib(14.76));
  EXPECT_EQ(beside.holders.front().name, "outside");
  const OomCase request = only(
      "MPS backend out of memory (MPS allocated: 1.50 GB, other allocations: 10.00 MB, max "
      "allowed: "
      "20.40 GB). Tried to allocate 32.00 GB on shared pool.");
  EXPECT_EQ(request.culprit, OomCulprit::request);
  // Without a limit nothing tells how much was missing.
  const OomCase unlimited = only(
      "MPS backend out of memory (MPS allocated: 15.50 GB, other allocations: 10.00 MB). Tried to "
      "allocate 2.00 GB on shared pool.");
  EXPECT_EQ(unlimited.culprit, OomCulprit::model);
  EXPECT_FALSE(unlimited.short_by);
  const OomCase cut = only("MPS backend out of memory (MPS allocated: 15.50 GB, other allo");
  EXPECT_TRUE(cut.message.is_cut);
  EXPECT_EQ(cut.culprit, OomCulprit::not_told);
  const OomCase absurd = only(
      "MPS backend out of memory (MPS allocated: 99999999999.50 GB, other allocations: 1.00 MB). "
      "Tried to allocate 2.00 GB on shared pool.");
  EXPECT_EQ(absurd.culprit, OomCulprit::not_told);
}

// As CI's virtual machines fail: nothing is held, and the device refuses all the same.
TEST(Oom, AnAppleGpuThatRefusesBelowItsLimit) {
  const OomCase one = only(
      "RuntimeError: MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 "
      "bytes, "
      "max allowed: 7.93 GB). Tried to allocate 256 bytes on private pool. Use");
  EXPECT_EQ(one.culprit, OomCulprit::was_free);
  EXPECT_EQ(one.culprit_bytes, gib(7.93));
  EXPECT_NE(one.advice[0].find("virtual machine"), std::string::npos);
  const OomCase buffer = only("RuntimeError: Invalid buffer size: 58.35 GB");
  EXPECT_EQ(buffer.culprit, OomCulprit::request);
  EXPECT_EQ(buffer.culprit_bytes, gib(58.35));
}

TEST(Oom, CudaMallocAsyncNamesItsFiguresLineByLine) {
  const OomCase one = only(
      "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
      "memory)\nCurrently allocated     : 20.45 GiB\nRequested               : 1.50 GiB\n"
      "Device limit            : 23.65 GiB\nFree (according to CUDA): 512.00 MiB\n"
      "PyTorch limit (set by user-supplied memory fraction)\n                        : "
      "17179869184.00 "
      "GiB\n");
  EXPECT_EQ(one.message.tried, gib(1.5));
  EXPECT_EQ(one.message.total, gib(23.65));
  EXPECT_FALSE(one.message.allowed);
  EXPECT_FALSE(one.message.is_cut);
  EXPECT_EQ(one.short_by->expected, gib(1));
}

// As rich and Lightning draw it: a bar on both sides, the words wrapped anywhere.
TEST(Oom, ABoxAroundItIsNoPartOfIt) {
  const std::string whole =
      message("4.00 GiB", "1.00 GiB", kThis + "78.25 GiB memory in use. ", "60.00 GiB",
              "and 17.50 GiB is reserved by PyTorch but unallocated.");
  for (const char* const bar : {"\xE2\x94\x82", "|"}) {
    for (const size_t width : {23U, 40U, 61U}) {
      const OomCase one = only(boxed(whole, bar, width));
      EXPECT_EQ(one.culprit, OomCulprit::fragmentation) << bar << width;
      EXPECT_FALSE(one.message.is_cut) << bar << width;
      EXPECT_EQ(one.culprit_bytes, gib(17.5)) << bar << width;
    }
  }
}

// Whether what the process holds beside its tensors is PyTorch's or not is in what is missing.
TEST(Oom, ACutMessageBlamesNobody) {
  const std::string whole =
      message("4.00 GiB", "1.00 GiB", kThis + "78.25 GiB memory in use. ", "60.00 GiB",
              "and 17.50 GiB is reserved by PyTorch but unallocated.");
  const OomCase one = only(whole.substr(0, whole.find("and 17.50")));
  EXPECT_TRUE(one.message.is_cut);
  EXPECT_EQ(one.culprit, OomCulprit::not_told);
  EXPECT_EQ(holder(one, "outside"), nullptr);
  EXPECT_EQ(holder(one, "not_listed")->bytes, gib(18.25));
  EXPECT_NE(one.verdict.find("ends before the figure"), std::string::npos);
  // What is true whatever is missing is said.
  const std::string large = message("100.00 GiB", "1.00 GiB", "", "60.00 GiB", "");
  EXPECT_EQ(only(large).culprit, OomCulprit::request);
}

TEST(Oom, AdviceIsOfTheMakersOwnTools) {
  const std::string rest =
      "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total "
      "capacity of 79.25 GiB of which 1.00 GiB is free. Process 7 has 30.00 GiB memory in use. Of "
      "the allocated memory 30.00 GiB is allocated by PyTorch, and 17.50 GiB is reserved by "
      "PyTorch "
      "but unallocated.";
  const OomCase one = only(rest);
  for (const std::string& advice : one.advice) {
    EXPECT_EQ(advice.find("nvidia"), std::string::npos) << advice;
    EXPECT_EQ(advice.find("CUDA"), std::string::npos) << advice;
  }
  EXPECT_EQ(only("RuntimeError: HIP error: out of memory").message.backend, "HIP");
}

}  // namespace
}  // namespace headroom::pack
