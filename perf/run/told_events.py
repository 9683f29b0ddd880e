"""What it costs to tell the allocator of an event that is recorded and waited for.

    python perf/run/told_events.py BUILD          # build/dev, say: its libraries, over the fake driver

Prints the microseconds of a pair, told and not told, of events that do nothing by themselves: the least of
several rounds.
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from headroom.run import library, streams  # noqa: E402 (from this tree)

PAIRS, ROUNDS = 20_000, 7


class Stream:
    device_index = 0

    def __init__(self, handle):
        self.cuda_stream = handle
        self.stream_id = 3 if handle else 0


class Event:
    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass


def microseconds(first, second):
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(PAIRS):
            event = Event()
            event.record(first)
            event.wait(second)
        best = min(best, (time.perf_counter() - begin) / PAIRS * 1e6)
    return best


def main(build):
    folder = Path(build).resolve() / "src" / "runtime"
    os.environ["HEADROOM_CUDA_DRIVER"] = str(folder / "libheadroom_fake_cuda.so")
    ours = library.Library(str(folder / "libheadroom_torch.so"))
    refused = ours.configure("run")
    assert not refused, refused
    allocate = ours.handle.headroom_malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    assert allocate(512, 0, None)  # the device is open from now on
    first, second = Stream(0), Stream(64)
    plain = microseconds(first, second)
    streams.follow(SimpleNamespace(cuda=SimpleNamespace(Event=Event, current_stream=lambda: first)), ours)
    print(f"{microseconds(first, second):.2f} us a pair of record and wait that is told, {plain:.2f} us without")


if __name__ == "__main__":
    main(*sys.argv[1:])
