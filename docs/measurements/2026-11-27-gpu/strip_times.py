"""A recording of `headroom run --record` without its times, which compress badly and which no replay reads.

    python3 strip_times.py FILE.hrec | gzip -9n > FILE.hrec.gz        (docs/formats/recording.md)
"""

import sys

HEADER, SLOT, TIME, FIRST_LONG = 64, 32, 24, 128  # bytes; of a kind


def stripped(recording):
    at = HEADER
    while at + SLOT <= len(recording) and recording[at]:
        slots = 1
        if recording[at] >= FIRST_LONG:
            slots = max(1, int.from_bytes(recording[at + 2:at + 4], "little"))
        else:
            recording[at + TIME:at + SLOT] = bytes(8)
        at += SLOT * slots
    return recording[:at]


sys.stdout.buffer.write(stripped(bytearray(open(sys.argv[1], "rb").read())))
