// Reading headroom.devices/1 files: data/devices.json and what users add to it.
//
// A file has "schema", "sources" (key -> provenance and text) and "devices". Every figure is an
// object with "value" and "source": a key of "sources" in this or an earlier file, or free text
// beside a "provenance". A device that was known before, or that says "like": NAME, starts from the
// figures of that device. Any thread; about 1 ms for the built-in file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "text/json.h"

namespace headroom::device {

struct FigureSource {
  std::string key;
  std::string text;
  Provenance provenance = Provenance::datasheet;
};

// Adds the sources and devices of `root`. On an Error both lists may be partly changed.
Result<void> read_device_file(const text::JsonView& root, std::vector<FigureSource>& sources,
                              std::vector<Device>& devices);

}  // namespace headroom::device
