"""What other programs take of the time of this one: how long its thread stood ready to run while they had the cores.

Linux counts it (proc(5), schedstat, where the kernel was built with it). On a machine that does nothing else it is
nearly nothing; on a busy one a call takes what it takes alone, and the turns of the others besides. Of one thread:
what a thread pool waits for its other threads is not in it.
"""

import os

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
