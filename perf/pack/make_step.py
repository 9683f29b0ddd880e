#!/usr/bin/env python3
"""Makes a training step of any size as a packing instance, for where no recording is at hand.

A stage of a pipeline runs its micro-batches one forward, one backward. A layer's forward makes twelve
tensors of a transformer's sizes; with recomputation only its input is kept to the backward, which runs the
forward again. A tensor that is not kept dies some events after it was made, at random, as a program's
variables do: that is what makes the instance hard. The same seed gives the same file.

Usage: make_step.py OUT.csv [--micro N] [--layers N] [--stages N] [--keep] [--seed N]
The one of 741,008 requests: --micro 464 --layers 42 --stages 16
"""

import argparse
import heapq
import random

KIB = 1 << 10
# Bytes of one layer's tensors: attention's, then the MLP's; odd ones as libraries round them.
SIZES_KIB = [49152, 4096, 32768, 98304.5, 2048, 49280, 4096.5, 4224, 2048, 8192, 49152, 4096]
CHECKPOINT_KIB = 8192
SHORTEST, LONGEST = 2, 24  # events that a tensor lives


class Step:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 0
        self.rows = []
        self.dying = []  # (due, request)

    def alloc(self, kib):
        self.now += 1
        self.rows.append([self.now, None, int(kib * KIB)])
        while self.dying and self.dying[0][0] <= self.now:
            self.free(heapq.heappop(self.dying)[1])
        return len(self.rows) - 1

    def free(self, request):
        self.now += 1
        self.rows[request][1] = self.now

    def free_some_time(self, request):
        heapq.heappush(self.dying, (self.now + self.random.randint(SHORTEST, LONGEST), request))

    def forward_layer(self, is_kept):
        tensors = [self.alloc(kib) for kib in SIZES_KIB]
        if not is_kept:
            for tensor in tensors:
                self.free_some_time(tensor)
            return []
        return tensors

    def forward(self, layers, is_kept):
        return [(self.alloc(CHECKPOINT_KIB), self.forward_layer(is_kept)) for _ in range(layers)]

    def backward(self, kept, is_recomputed):
        gradient = self.alloc(CHECKPOINT_KIB)
        for checkpoint, tensors in reversed(kept):
            tensors = self.forward_layer(True) if is_recomputed else tensors
            for tensor in reversed(tensors):
                self.free_some_time(self.alloc(self.rows[tensor][2] / KIB))
                self.free_some_time(tensor)
            following = self.alloc(CHECKPOINT_KIB)
            self.free(gradient)
            self.free(checkpoint)
            gradient = following
        self.free(gradient)

    def finish(self):
        for _, request in sorted(self.dying):
            self.free(request)


def make(args):
    step = Step(args.seed)
    live = []
    ahead = min(args.micro, args.stages)
    for _ in range(ahead):
        live.append(step.forward(args.layers, args.keep))
    for micro in range(args.micro):
        step.backward(live.pop(0), not args.keep)
        if micro + ahead < args.micro:
            live.append(step.forward(args.layers, args.keep))
    step.finish()
    return step.rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="without recomputation")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rows = make(args)
    with open(args.out, "w", encoding="utf-8") as out:
        out.write("id,lower,upper,size\n")
        out.writelines(f"{i},{lower},{upper},{size}\n" for i, (lower, upper, size) in enumerate(rows))
    print(f"{args.out}: {len(rows)} requests")


if __name__ == "__main__":
    main()
