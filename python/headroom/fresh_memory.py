"""What memory costs that a program has just been given: the system finds and clears each page as it is first written to.

The opposite of kept_memory.py, for what a program with large outputs pays with each of them.
"""

import mmap
import statistics

# Larger than what glibc ever keeps (32 MiB); of each the median of so many first touches.
FRESH_BYTES = (48 << 20, 96 << 20, 192 << 20)
FRESH_SAMPLES = 7


def take_fresh_memory(machine):
    """What pages cost that the system must find and clear: writing to a block for the first time, beyond writing to it
    again. Of sizes that the C library takes from the system each time; nothing where a program has no such blocks."""
    if machine.is_cuda or not hasattr(mmap, "MAP_PRIVATE"):
        return []
    found = []
    for size in FRESH_BYTES:
        if size > machine.free_bytes() // 8:
            break
        first, again = zip(*(fresh_sample(machine, size) for _ in range(FRESH_SAMPLES)))
        found.append({"bytes": size, "seconds": max(0.0, statistics.median(first) - statistics.median(again))})
    return found


def fresh_sample(machine, size):
    """Seconds of the first and of the second time that all of a new block is written to."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = machine.torch.frombuffer(block, dtype=machine.torch.float32)
    taken = [machine.seconds_of(lambda _: tensor.fill_(1), 1) for _ in range(2)]
    del tensor
    block.close()
    return taken
