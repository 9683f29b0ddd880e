"""The runner of `bench device` on a device that no other work disturbs: each call is made once, and takes
what a roofline of round figures says."""

import sys

from headroom import device_probe

FLOPS, BYTES, START = 5e10, 1e10, 2e-6
STEP = 0.02  # of a small model
made_for_real = device_probe.make_call


def steady_call(machine, kind, shape, dtype, turns):
    made_for_real(machine, kind, shape, dtype, turns)(0)
    flops, moved = device_probe.work_of(kind, shape, dtype.itemsize)
    return START + max(flops / FLOPS, moved / BYTES)


def main():
    # Called as python is: -m headroom.device_probe ARGUMENTS
    assert sys.argv[1:3] == ["-m", "headroom.device_probe"], sys.argv
    del sys.argv[1:3]
    device_probe.make_call = steady_call
    device_probe.take_samples = lambda machine, call, seconds: ([STEP if callable(call) else call] * 5, 0.0)
    return device_probe.main()


if __name__ == "__main__":
    sys.exit(main())
