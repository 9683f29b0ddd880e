// What `headroom bench device` measured on one machine, as a file: headroom.calibration/1.
//
//   "machine"  what was measured, with which PyTorch, at which load
//   "device"   the name under which it goes, as in --device
//   "devices"  its figures, as a headroom.devices/1 file has them; absent where the catalogue's
//   hold "timing"   its laws with their errors, as a headroom.timing/1 file has them "points" what
//   was measured, which the laws are used with (measured_point.h)
//   "bandwidth", "latency"  of memory by size, and of a call that does nothing: for people
//   "fresh_memory"  what pages cost that the system must find and clear; of processors
//
// Other members are left alone: `fit` keeps corrections of its own in the same kind of file. Pure
// but for the file itself; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/catalogue.h"
#include "text/json.h"
#include "timing/law_file.h"
#include "timing/measured_point.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// As the probe found it.
struct Machine {
  std::string product;  // "AMD EPYC 7B13"
  std::string kind;     // "cpu" or "cuda"
  Bytes memory;
  Bytes cache;        // the last level
  int64_t units = 1;  // threads, or multiprocessors
  std::string torch;
  std::string python;
  double load = 0;          // of the system when measuring began; on a quiet machine below 0.5
  double clock_hertz = 0;   // when measuring began; 0: not told
  std::string engine = {};  // whose operators they are: "onnxruntime 1.31.1"; empty: PyTorch's
};

// As far as times are concerned: threads are part of it and whose operators run, versions are not.
[[nodiscard]] bool is_same_machine(const Machine& a, const Machine& b);
// An Error that names what the calibration of `file` is of, where that is not `machine`.
Result<void> check_same_machine(const Machine& calibrated, const Machine& machine,
                                const std::string& file);

// Memory that is copied or read again and again: what lies within a cache comes from it.
struct MemoryPoint {
  Bytes size;
  double copy_bytes_per_second = 0;  // read and written
  double read_bytes_per_second = 0;
};

// Of a call whose work is nothing; 0: not measured.
struct Latency {
  double launch_seconds = 0;      // until the next one may be issued
  double round_trip_seconds = 0;  // until its result is there
};

// A block that a program has just been given by the system, written to for the first time.
struct FreshMemoryPoint {
  Bytes size;
  double seconds = 0;  // beyond what writing to it again takes
};

struct Calibration {
  Machine machine;
  std::string device;
  text::Json devices;                                // null: the catalogue knows it
  std::string devices_place = "what was measured#";  // of them, for errors
  LawFile laws;
  std::vector<MeasuredPoint> points;
  std::vector<MemoryPoint> memory;  // by size
  Latency latency;
  std::vector<FreshMemoryPoint> fresh_memory;  // empty: not measured
};

[[nodiscard]] text::Json machine_json(const Machine& machine);
Result<Machine> read_machine(const text::JsonView& view);
// Members "bandwidth" and "latency" of a calibration or of what the probe wrote; both may be
// absent.
Result<std::vector<MemoryPoint>> read_memory(const text::JsonView& root);
Result<Latency> read_latency(const text::JsonView& root);
// "fresh_memory", which may be absent too.
Result<std::vector<FreshMemoryPoint>> read_fresh_memory(const text::JsonView& root);

[[nodiscard]] text::Json calibration_json(const Calibration& calibration);
Result<Calibration> read_calibration(const text::JsonView& root);
Result<Calibration> load_calibration(const std::string& path);
// Nothing where the file holds no times of operators: a correction of `fit` alone.
Result<std::optional<Calibration>> find_calibration(const std::string& path);

// Puts the device into the catalogue; gives it back.
Result<device::Device> add_device(const Calibration& calibration,
                                  device::DeviceCatalogue& catalogue);
// Puts the laws and points of `device` into the model. On an Error it may be partly changed.
Result<void> add_laws(const Calibration& calibration, const device::Device& device,
                      TimingModel& model);
// Both.
Result<void> adopt(const Calibration& calibration, device::DeviceCatalogue& catalogue,
                   TimingModel& model);

}  // namespace headroom::timing
