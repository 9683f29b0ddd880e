#include "ops/calibration_notes.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

timing::Calibration calibration(const std::string& engine) {
  timing::Calibration made;
  made.machine.product = "Some CPU";
  made.machine.kind = "cpu";
  made.machine.torch = "2.13";
  made.machine.engine = engine;
  made.device = "cpu";
  for (const auto kind : {timing::OperatorClass::gemm_fp32, timing::OperatorClass::linear_int8}) {
    timing::Law law;
    law.kind = kind;
    law.device = "cpu";
    made.laws.laws.push_back(law);
  }
  return made;
}

bool has(const std::vector<std::string>& notes, const std::string& words) {
  for (const std::string& note : notes) {
    if (note.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(CalibrationNotes, ATraceIsToldWhoseTimesItIsHeldAgainst) {
  EXPECT_NE(note_of_trace(calibration("").machine).find("measured on Some CPU with PyTorch 2.13"),
            std::string::npos);
}

TEST(CalibrationNotes, AnOnnxFileIsNotOfPyTorch) {
  const auto notes = notes_of_prediction(calibration(""), true);
  EXPECT_TRUE(has(notes, "measured on Some CPU"));
  EXPECT_TRUE(has(notes, "PyTorch's operators"));
  EXPECT_FALSE(has(notes_of_prediction(calibration(""), false), "PyTorch's operators"));
}

TEST(CalibrationNotes, ClassesOfOnnxRuntimeAreNamed) {
  const auto notes = notes_of_prediction(calibration("onnxruntime 1.31.1"), true);
  EXPECT_TRUE(has(notes, "onnxruntime 1.31.1: gemm_fp32, linear_int8"));
  EXPECT_FALSE(has(notes, "PyTorch, which runs"));
  EXPECT_TRUE(
      has(notes_of_prediction(calibration("onnxruntime 1.31.1"), false), "PyTorch, which runs"));
}

TEST(CalibrationNotes, ADeviceWithoutAProductIsNamed) {
  device::Device device;
  device.name = "cpu";
  EXPECT_EQ(measured_product(device), "cpu");
  device.product = "Some CPU";
  EXPECT_EQ(measured_product(device), "Some CPU");
}

}  // namespace
}  // namespace headroom::ops
