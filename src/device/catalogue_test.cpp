#include "device/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "device/names.h"

namespace headroom::device {
namespace {

const DeviceCatalogue& catalogue() {
  static const DeviceCatalogue kCatalogue = DeviceCatalogue::built_in();
  return kCatalogue;
}

std::string found(std::string_view spec) {
  const Result<Device> device = catalogue().find(spec);
  return device ? device->name : "error: " + device.error().to_string();
}

TEST(Catalogue, HoldsTheDevicesThatWerePromised) {
  for (const char* name :
       {"v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb", "v100-pcie-32gb",
        "a100-sxm-40gb",  "a100-sxm-80gb",  "a100-pcie-40gb", "a100-pcie-80gb",
        "h100-sxm-80gb",  "h100-pcie-80gb", "h100-nvl-94gb",  "h100-sxm-64gb",
        "h100-sxm-96gb",  "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm-288gb",
        "gb200-186gb",    "gh200-96gb",     "l4-24gb",        "l40s-48gb",
        "a10g-24gb",      "a10-24gb",       "t4-16gb",        "rtx-3060-12gb",
        "rtx-3090-24gb",  "rtx-4090-24gb",  "rtx-5090-32gb",  "rtx-4070-ti-super-16gb",
        "mi210-64gb",     "mi250-64gb",     "mi300x-192gb",   "cpu"}) {
    EXPECT_EQ(found(name), name);
  }
}

TEST(Catalogue, FiguresAreTheMakersOrTheDriversWord) {
  const auto device = [](std::string_view name) { return *catalogue().find(name); };
  EXPECT_EQ(device("A6000").rate(Rate::bf16).value.value, 154.8e12);  // dense
  EXPECT_EQ(device("A6000").usable_memory.value, Bytes(48676 * kMiB));
  EXPECT_EQ(device("A40").usable_memory.value, Bytes(47'608'692'736));
  EXPECT_EQ(device("H20").rate(Rate::bf16).value.value, 148e12);
  EXPECT_EQ(device("H20").sm_count.value, 78);
  // What the boards for export lack is in the link.
  EXPECT_EQ(device("H800").rate(Rate::bf16).value, device("h100-sxm-80gb").rate(Rate::bf16).value);
  EXPECT_EQ(device("H800").link.value.value, 200e9);
  EXPECT_EQ(device("a800-sxm-80gb").link.value.value, 200e9);
  // GeForce boards add up in FP32 at half the rate of those for work.
  EXPECT_EQ(device("2080 Ti").rate(Rate::fp16).value.value, 53.8e12);
  EXPECT_EQ(device("TITAN RTX").rate(Rate::fp16).value.value, 130.5e12);
  EXPECT_FALSE(device("2080 Ti").rate(Rate::bf16).known());
  // Eight lanes.
  EXPECT_EQ(device("4060 Ti").pcie.value.value, 16e9);
  EXPECT_EQ(device("MI355X").usable_memory.value, Bytes(288 * kGiB - 16 * kMiB));
}

TEST(Catalogue, EveryGpuHasEveryFigureWithASource) {
  for (const Device& device : catalogue().devices()) {
    SCOPED_TRACE(device.name);
    EXPECT_FALSE(device.product.empty());
    EXPECT_FALSE(device.architecture.empty());
    if (device.vendor == Vendor::cpu) continue;
    EXPECT_TRUE(device.compute_capability.known());
    EXPECT_TRUE(device.memory.known());
    EXPECT_TRUE(device.usable_memory.known());
    EXPECT_TRUE(device.bandwidth.known());
    EXPECT_TRUE(device.l2.known());
    EXPECT_TRUE(device.sm_count.known());
    EXPECT_TRUE(device.link.known());
    EXPECT_TRUE(device.pcie.known());
    EXPECT_TRUE(device.context.known());
    EXPECT_TRUE(device.rate(Rate::fp32).known());
    EXPECT_TRUE(device.rate(Rate::fp16).known());
    EXPECT_GT(device.rate(Rate::fp16).value, device.rate(Rate::fp32).value);
    EXPECT_LE(device.usable_memory.value, device.memory.value);
    // What the driver keeps for itself is a small part.
    EXPECT_GT(device.usable_memory.value.count, device.memory.value.count / 100 * 94);
    EXPECT_EQ(device.link.value.value == 0, device.link_kind == "none");
  }
}

TEST(Catalogue, NamesAreUniqueAsWordsToo) {
  std::set<std::vector<std::string>> seen;
  for (const Device& device : catalogue().devices()) {
    EXPECT_TRUE(seen.insert(name_words(device.name)).second) << device.name;
    EXPECT_EQ(found(device.name), device.name);
    // Boards of one product that differ in memory are told apart by it.
    if (std::ranges::count(catalogue().devices(), device.product, &Device::product) > 1) {
      EXPECT_NE(found(device.product).find(device.name), std::string::npos) << device.name;
    } else {
      EXPECT_EQ(found(device.product), device.name);
    }
    for (const std::string& alias : device.aliases) EXPECT_EQ(found(alias), device.name);
  }
}

TEST(Catalogue, FindsWhatPeopleWrite) {
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB"), "a100-sxm-80gb");
  EXPECT_EQ(found("A100-SXM4-40GB"), "a100-sxm-40gb");
  EXPECT_EQ(found("a100 pcie 80 GB"), "a100-pcie-80gb");
  EXPECT_EQ(found("H100 NVL"), "h100-nvl-94gb");
  EXPECT_EQ(found("H100 96GB"), "h100-sxm-96gb");
  EXPECT_EQ(found("h200"), "h200-sxm-141gb");
  EXPECT_EQ(found("H200 141GB"), "h200-sxm-141gb");
  EXPECT_EQ(found("B200"), "b200-sxm-180gb");
  EXPECT_EQ(found("GB200"), "gb200-186gb");
  EXPECT_EQ(found("RTX3090"), "rtx-3090-24gb");
  EXPECT_EQ(found("4070Ti SUPER"), "rtx-4070-ti-super-16gb");
  EXPECT_EQ(found("A10"), "a10-24gb");
  EXPECT_EQ(found("A10G"), "a10g-24gb");
  EXPECT_EQ(found("L4"), "l4-24gb");
  EXPECT_EQ(found("A6000"), "rtx-a6000-48gb");
  EXPECT_EQ(found("Quadro RTX A6000"), "rtx-a6000-48gb");
  EXPECT_EQ(found("RTX 6000 Ada"), "rtx-6000-ada-48gb");
  EXPECT_EQ(found("6000 Ada"), "rtx-6000-ada-48gb");
  EXPECT_EQ(found("Quadro RTX 6000"), "quadro-rtx-6000-24gb");
  EXPECT_EQ(found("RTX 8000"), "quadro-rtx-8000-48gb");
  EXPECT_EQ(found("RTX PRO 6000 Server"), "rtx-pro-6000-server-96gb");
  EXPECT_EQ(found("A40"), "a40-48gb");
  EXPECT_EQ(found("A30"), "a30-24gb");
  EXPECT_EQ(found("A4000"), "rtx-a4000-16gb");
  EXPECT_EQ(found("A5000"), "rtx-a5000-24gb");
  EXPECT_EQ(found("L40"), "l40-48gb");
  EXPECT_EQ(found("L40S"), "l40s-48gb");
  EXPECT_EQ(found("L20"), "l20-48gb");
  EXPECT_EQ(found("H20"), "h20-96gb");
  EXPECT_EQ(found("H800"), "h800-sxm-80gb");
  EXPECT_EQ(found("H800 PCIe"), "h800-pcie-80gb");
  EXPECT_EQ(found("A800 PCIe"), "a800-pcie-80gb");
  EXPECT_EQ(found("H200 NVL"), "h200-nvl-141gb");
  EXPECT_EQ(found("TITAN RTX"), "titan-rtx-24gb");
  EXPECT_EQ(found("MI325X"), "mi325x-256gb");
}

TEST(Catalogue, BoardsCalledTiOrSuperAreOthers) {
  EXPECT_EQ(found("4070"), "rtx-4070-12gb");
  EXPECT_EQ(found("4070 12GB"), "rtx-4070-12gb");
  EXPECT_EQ(found("4070 Ti"), "rtx-4070-ti-12gb");
  EXPECT_EQ(found("RTX 4070 Ti SUPER"), "rtx-4070-ti-super-16gb");
  EXPECT_EQ(found("4080"), "rtx-4080-16gb");
  EXPECT_EQ(found("RTX4080 SUPER"), "rtx-4080-super-16gb");
  EXPECT_EQ(found("4080SUPER"), "rtx-4080-super-16gb");
  EXPECT_EQ(found("3090"), "rtx-3090-24gb");
  EXPECT_EQ(found("3090 24GB"), "rtx-3090-24gb");
  EXPECT_EQ(found("3090Ti"), "rtx-3090-ti-24gb");
  EXPECT_EQ(found("3080 Ti"), "rtx-3080-ti-12gb");
  EXPECT_EQ(found("3080 12GB"), "rtx-3080-12gb");
  EXPECT_EQ(found("2080 Ti"), "rtx-2080-ti-11gb");
  EXPECT_EQ(found("5080"), "rtx-5080-16gb");
  EXPECT_EQ(found("5070 Ti"), "rtx-5070-ti-16gb");
  EXPECT_EQ(found("5060 Ti"), "rtx-5060-ti-16gb");
  EXPECT_EQ(found("3070"), "rtx-3070-8gb");
  // There is a board of that name, which is not known.
  for (const char* name : {"2080", "5070", "4060", "4070 SUPER", "2080 SUPER"}) {
    EXPECT_NE(found(name).find("is not known"), std::string::npos) << name;
    EXPECT_EQ(found(name).find("lists those"), std::string::npos) << name;
  }
}

TEST(Catalogue, AmbiguousNamesAreRefusedWithTheCandidates) {
  const Error error = catalogue().find("A100-80GB").error();
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_EQ(error.to_string(),
            "device 'A100-80GB' is ambiguous (it may be a100-sxm-80gb, a100-pcie-80gb)");
  for (const char* name : {"A100", "H100", "H100-80GB", "V100 16GB", "rtx", "80gb", "A800",
                           "RTX 6000", "RTX PRO 6000", "3080", "RTX 3080"}) {
    EXPECT_NE(found(name).find("ambiguous"), std::string::npos) << name;
  }
}

TEST(Catalogue, UnknownAndHostileNames) {
  EXPECT_NE(found("a100-sxm-80g0").find("did you mean a100-sxm-80gb?"), std::string::npos);
  for (const std::string& name :
       {std::string(), std::string("nvidia"), std::string(" - "), std::string("z9000"),
        std::string(100'000, 'a'), std::string("\x1B[2J\0x", 6), std::string(1500, '-'),
        std::string("../../etc/passwd"), std::string("A100%s%n"), std::string("\xFF\xFE")}) {
    const Result<Device> device = catalogue().find(name);
    ASSERT_FALSE(device) << name;
    EXPECT_EQ(device.error().code, ErrorCode::usage);
    EXPECT_EQ(device.error().message.find('\x1B'), std::string::npos);
    EXPECT_LT(device.error().to_string().size(), 400U);
  }
}

TEST(Catalogue, MeasurementsGetAStatedDefault) {
  const FoundDevice exact = *catalogue().find_for_measurement("A100-SXM4-40GB");
  EXPECT_EQ(exact.device.name, "a100-sxm-40gb");
  EXPECT_EQ(exact.assumption, "");
  const FoundDevice guess = *catalogue().find_for_measurement("A100-80GB");
  EXPECT_EQ(guess.device.name, "a100-sxm-80gb");
  EXPECT_EQ(guess.assumption,
            "'A100-80GB' may be a100-sxm-80gb, a100-pcie-80gb; taken for the first of them");
  const auto name = [](std::string_view text) {
    return catalogue().find_for_measurement(text)->device.name;
  };
  EXPECT_EQ(name("A100"), "a100-sxm-80gb");
  EXPECT_EQ(name("A100 40GB"), "a100-sxm-40gb");
  EXPECT_EQ(name("4x A100 NVLink"), "a100-sxm-80gb");
  EXPECT_EQ(name("H100 (labelled A100)"), "h100-sxm-80gb");
  EXPECT_EQ(name("2x RTX3090"), "rtx-3090-24gb");
  EXPECT_EQ(name("V100 16GB"), "v100-sxm2-16gb");
  EXPECT_EQ(name("RTX 3060 12GB"), "rtx-3060-12gb");
  EXPECT_EQ(name("4x RTX A6000"), "rtx-a6000-48gb");
  EXPECT_EQ(name("A800"), "a800-sxm-80gb");
  EXPECT_EQ(name("RTX 3080"), "rtx-3080-10gb");
  EXPECT_EQ(name("RTX PRO 6000"), "rtx-pro-6000-workstation-96gb");
  EXPECT_FALSE(catalogue().find_for_measurement("8 GPUs"));
  EXPECT_FALSE(catalogue().find_for_measurement(""));
}

TEST(Catalogue, OverridesReplaceFiguresAndSaySo) {
  const Device device =
      *catalogue().find("h100-sxm-80gb,bandwidth=8TB/s,memory=64GiB,bf16=1000TFLOPS,context=1GiB");
  EXPECT_EQ(device.bandwidth.value.value, 8e12);
  EXPECT_EQ(device.bandwidth.source, "given by the user");
  EXPECT_EQ(device.memory.value, Bytes(64 * kGiB));
  EXPECT_EQ(device.usable_memory.value, Bytes(64 * kGiB));
  EXPECT_EQ(device.rate(Rate::bf16).value.value, 1e15);
  EXPECT_EQ(device.context.value.high, Bytes(kGiB));
  EXPECT_EQ(device.l2.value, catalogue().find("h100-sxm-80gb")->l2.value);
}

TEST(Catalogue, APowerLimitLowersTheClockAlone) {
  const Device whole = *catalogue().find("h100-sxm-80gb");
  const Device held = *catalogue().find("h100-sxm-80gb,power=400W");
  // That of the H100 NVL, which is made for it.
  EXPECT_NEAR(held.rate(Rate::bf16).value.value, 835.5e12, 1e9);
  EXPECT_EQ(held.rate(Rate::bf16).provenance, Provenance::extrapolated);
  EXPECT_EQ(held.bandwidth.value, whole.bandwidth.value);
  EXPECT_EQ(catalogue().find("h100-sxm-80gb,power=0.7kW")->rate(Rate::fp8).value,
            whole.rate(Rate::fp8).value);
  for (const char* name : {"h100-sxm-80gb,power=800W", "h100-sxm-80gb,power=100W", "cpu,power=50W",
                           "h100-sxm-80gb,power=500", "h100-sxm-80gb,power=nanW"}) {
    EXPECT_FALSE(catalogue().find(name)) << name;
  }
}

TEST(Catalogue, BadOverridesAreRefused) {
  for (const char* list :
       {"", ",", "memory", "memory=", "=8TB/s", "memory=80", "memory=1B", "memory=1e9TiB",
        "memory=-1GiB", "bandwith=8TB/s", "bandwidth=8TB", "bandwidth=1B/s", "bf16=1B/s",
        "memory=1GiB,memory=2GiB", "usable_memory=900GiB", "memory=1GiB,", "bf16=nanTFLOPS"}) {
    const Result<Device> device = catalogue().find("h100-sxm-80gb," + std::string(list));
    ASSERT_FALSE(device) << list;
    EXPECT_EQ(device.error().code, ErrorCode::usage) << list;
  }
  EXPECT_NE(found("h100-sxm-80gb,bandwith=8TB/s").find("did you mean bandwidth?"),
            std::string::npos);
}

TEST(Catalogue, AutoAsksTheDriver) {
  const auto detector = [](std::string name, int64_t mib) {
    return [=]() -> Result<std::vector<DetectedGpu>> {
      return std::vector<DetectedGpu>{{name, Bytes(mib * kMiB), Bytes(kMiB)}};
    };
  };
  const Device h100 = *catalogue().find("auto", detector("NVIDIA H100 80GB HBM3", 81559));
  EXPECT_EQ(h100.name, "h100-sxm-80gb");
  EXPECT_EQ(h100.memory.provenance, Provenance::measured);
  EXPECT_EQ(h100.memory.value, Bytes(81559 * kMiB));
  EXPECT_EQ(catalogue().find("auto,bandwidth=1TB/s", detector("NVIDIA H200", 143771))->name,
            "h200-sxm-141gb");
  // Of one product, the one with as much memory.
  EXPECT_EQ(catalogue().find("auto", detector("NVIDIA GeForce RTX 3080", 10240))->name,
            "rtx-3080-10gb");
  EXPECT_EQ(catalogue().find("auto", detector("NVIDIA GeForce RTX 3080", 12288))->name,
            "rtx-3080-12gb");
  EXPECT_EQ(catalogue().find("auto", detector("NVIDIA GeForce RTX 4060 Ti", 8188)).error().code,
            ErrorCode::unavailable);
  // A part of such a GPU (MIG) is not that GPU.
  EXPECT_EQ(catalogue().find("auto", detector("NVIDIA H200", 20000)).error().code,
            ErrorCode::unavailable);
  EXPECT_EQ(catalogue().find("auto", detector("NVIDIA Z9000", 8192)).error().code,
            ErrorCode::unavailable);
  const Detector nothing = []() -> Result<std::vector<DetectedGpu>> {
    return Error{ErrorCode::unavailable, "no driver", {}, {}};
  };
  EXPECT_EQ(catalogue().find("auto", nothing).error().message, "no driver");
}

TEST(Catalogue, TheRealDetectorAnswersOrIsUnavailable) {
  const Result<std::vector<DetectedGpu>> gpus = detect_gpus();
  if (gpus) {
    EXPECT_FALSE(gpus->empty());
  } else {
    EXPECT_EQ(gpus.error().code, ErrorCode::unavailable);
    EXPECT_FALSE(gpus.error().hint.empty());
  }
}

TEST(Catalogue, CpuKnowsTheMemoryOfThisMachine) {
  const Device cpu = *catalogue().find("cpu");
  EXPECT_EQ(cpu.vendor, Vendor::cpu);
  EXPECT_GT(cpu.memory.value.count, 100 * kMiB);
  EXPECT_EQ(cpu.memory.provenance, Provenance::measured);
  EXPECT_FALSE(cpu.bandwidth.known());
  EXPECT_EQ(catalogue().find("CPU")->memory.value, cpu.memory.value);
}

TEST(Catalogue, LoadsTheUsersFiles) {
  std::string directory = (std::filesystem::temp_directory_path() / "headroom_XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  std::filesystem::create_directory(directory + "/headroom");
  const auto write = [](const std::string& path, const std::string& name) {
    return write_file_atomic(path, R"({"schema": "headroom.devices/1", "devices": [{"name": ")" +
                                       name + R"(", "like": "h200-sxm-141gb"}]})");
  };
  ASSERT_TRUE(write(directory + "/headroom/devices.json", "mine"));
  ASSERT_TRUE(write(directory + "/other.json", "other"));
  ::setenv("XDG_CONFIG_HOME", directory.c_str(), 1);
  ::setenv("HEADROOM_DEVICES", (directory + "/other.json").c_str(), 1);
  const Result<DeviceCatalogue> loaded = DeviceCatalogue::load();
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->find("mine")->compute_capability.value.major, 9);
  EXPECT_TRUE(loaded->find("other"));
  ::setenv("HEADROOM_DEVICES", (directory + "/absent.json").c_str(), 1);
  EXPECT_FALSE(DeviceCatalogue::load());
  ::unsetenv("HEADROOM_DEVICES");
  ::unsetenv("XDG_CONFIG_HOME");
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace headroom::device
