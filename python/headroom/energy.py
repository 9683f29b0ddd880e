"""The energy that the processor packages took, where the system lets it be read: RAPL by Linux's powercap.

A counter is in microjoules and starts over at max_energy_range_uj. Most systems let only root read it
(since CVE-2020-8694), and virtual machines have none: then there is no meter, not a zero.
"""

import os
import re

POWERCAP = "/sys/class/powercap"


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
