"""The energy that was taken, where the system lets it be read: of the processor packages RAPL by Linux's powercap, of a
GPU the driver's own counter (NVML, which Volta and later have).

A counter of RAPL is in microjoules and starts over at max_energy_range_uj. Most systems let only root read it
(since CVE-2020-8694), and virtual machines have none: then there is no meter, not a zero.
"""

import ctypes
import os
import re

POWERCAP = "/sys/class/powercap"


def meter_of(machine):
    """Of what measures: a device_probe.Machine."""
    if not machine.is_cuda:
        return Meter()
    bus = machine.torch.cuda.get_device_properties(machine.device)
    return DeviceMeter(f"{bus.pci_domain_id:08x}:{bus.pci_bus_id:02x}:{bus.pci_device_id:02x}.0"
                       if hasattr(bus, "pci_bus_id") else None)


class DeviceMeter:
    """Joules of one GPU, by its place on the bus, since the last time it was asked; None where the driver does not
    say. Tested with a library that stands in for NVML: no GPU was at hand."""

    def __init__(self, bus, library=None):
        self.library, self.handle = library, ctypes.c_void_p()
        try:
            self.library = library or ctypes.CDLL("libnvidia-ml.so.1")
            known = bus is not None and self.library.nvmlInit_v2() == 0 and self.library.nvmlDeviceGetHandleByPciBusId_v2(
                bus.encode(), ctypes.byref(self.handle)) == 0
        except (OSError, AttributeError):
            known = False
        self.last = self._read() if known else None
        self.known = self.last is not None

    def _read(self):
        millijoules = ctypes.c_ulonglong()
        failed = self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(millijoules))
        return None if failed else millijoules.value

    def joules(self):
        if not self.known:
            return None
        before, self.last = self.last, self._read()
        if before is None or self.last is None or self.last <= before:  # it is counted every 100 ms or so
            return None
        return (self.last - before) * 1e-3


class Meter:
    """Joules of all packages since the last time it was asked; None where a counter cannot be read."""

    def __init__(self, folder=POWERCAP):
        self.counters = []
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            # Packages alone: what is below one ("intel-rapl:0:1") is counted in it already.
            if re.fullmatch(r"(intel|amd)-rapl:\d+", name):
                place = os.path.join(folder, name)
                self.counters.append((os.path.join(place, "energy_uj"), _number(place, "max_energy_range_uj")))
        self.last = self._read()

    def _read(self):
        values = [_number(*os.path.split(file)) for file, _ in self.counters]
        return None if not values or None in values else values

    def joules(self):
        before, self.last = self.last, self._read()
        if before is None or self.last is None:
            return None
        total = 0
        for (_, size), start, end in zip(self.counters, before, self.last):
            if end < start and not size:
                return None
            total += end - start if end >= start else end - start + size
        return total * 1e-6


def _number(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
