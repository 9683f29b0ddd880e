"""Memory of one's own: freed blocks stay with the process, and it has pages to spare, as one that has run for a while.

PyTorch's CPU tensors come from malloc. glibc gives large blocks back to the system as they are freed, or keeps them,
by how large earlier ones were and by what lies above them in the heap: the output of a call is then memory that the
process has, or pages that the system must find and clear first. That decides an elementwise operator's time, up to
four times on a virtual machine, and it is chance: two rounds of one run differ by it.
"""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def keep_freed_memory():
    """For the rest of the process; whether the C library does it (glibc does)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))


def touch(torch, count):
    """A block of so many bytes, written to and freed: what is allocated next lies in its pages. Without it the heap grows
    by a new block each time, since an aligned one, once freed, is a little too small for the next of its size."""
    torch.zeros(count, dtype=torch.uint8).fill_(1)
