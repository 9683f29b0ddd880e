"""What other programs take of the time of this one: how long its thread stood ready to run while they had the cores.

Linux counts it (proc(5), schedstat, where the kernel was built with it). On a machine that does nothing else it is
nearly nothing; on a busy one a call takes what it takes alone, and the turns of the others besides. Of one thread:
what a thread pool waits for its other threads is not in it.
"""

import os
import resource

PLACE = "/proc/thread-self/schedstat"


class Waiting:
    """Seconds that the calling thread has waited for a core so far. A reading takes about a microsecond."""

    def __init__(self, place=PLACE):
        try:
            self.file = os.open(place, os.O_RDONLY)
            self.seconds()
        except (OSError, ValueError, IndexError):
            self.file = None

    @property
    def is_known(self):
        return self.file is not None

    def seconds(self):
        if self.file is None:
            return 0.0
        return int(os.pread(self.file, 128, 0).split()[1]) * 1e-9


class Turns:
    """How long the calling thread keeps a core before another program is given it, over what follows."""

    def __init__(self):
        self.start = self.read()

    @staticmethod
    def read():
        """Seconds on a core, and how often that was ended by others, not by sleeping (getrusage(2), which Linux alone has of a
        thread)."""
        if not hasattr(resource, "RUSAGE_THREAD"):
            return None
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return used.ru_utime + used.ru_stime, used.ru_nivcsw

    def mean_us(self):
        """None where nobody took the core, or nobody counts."""
        end = self.read()
        if end is None or end[1] == self.start[1]:
            return None
        return 1e6 * (end[0] - self.start[0]) / (end[1] - self.start[1])
