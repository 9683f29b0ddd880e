"""How a setting is measured: under a profiler and without it, in visits that take turns with those of other settings.

What other programs and a host's other tenants do to a clock often lasts for seconds: a processor of a cloud was seen to take
half as long again for five, and not for the next twenty. Runs that follow one another are all within such a time or all
outside. So a setting is visited VISITS times, and between its visits those of the other settings of its model are measured,
exported and quantized, where memory holds them beside each other; where it does not, once. What was found is one: a
typical run (typical_run.py) is composed of the runs of all visits, and the median is of all samples. Against what lasts for
minutes that is no help (docs/measurements/2026-11-27-nongemm-cpu).

A run that takes all of the time is made once, under the profiler, and its time is that. `work` is an engine's: how it runs one
setting (nongemm_probe.EagerWork, nongemm_onnx.OnnxWork).
"""

import math
import statistics
import time

from headroom import energy, typical_run
from headroom.device_probe import LEAST_OF_A_SAMPLE

VISITS = 3
SURE = 0.02  # half width of the median's interval, of the median
LEAST_SAMPLES, MOST_SAMPLES = 3, 200
MOST_PROFILED_ON_A_GPU = 5  # runs, of which the quickest one's trace is all that is read
MOST_DECODE_PROFILED = 2.0  # seconds: of `bench decode` the quickest run alone is read


class Stopwatch:
    """The seconds of single calls, of the device's work too."""

    def __init__(self, machine):
        self.machine, self.undisturbed = machine, []

    def once(self, call):
        self.settle()
        waited, start = self.machine.waiting.seconds(), time.perf_counter()
        call()
        self.settle()
        taken = time.perf_counter() - start
        self.undisturbed.append(max(taken - (self.machine.waiting.seconds() - waited), LEAST_OF_A_SAMPLE * taken))
        return taken

    def undisturbed_seconds(self):
        """The median of the runs so far, less what other programs took; None where the system does not say."""
        is_known = self.machine.waiting.is_known and not self.machine.is_cuda
        return statistics.median(self.undisturbed) if is_known else None

    def settle(self):
        if self.machine.is_cuda:
            self.machine.torch.cuda.synchronize(self.machine.device)


class Samples:
    """Single runs, until their median is sure or the time is up; of each visit about as many."""

    def __init__(self, machine):
        self.stopwatch, self.seconds, self.half, self.joules, self.a_visit = Stopwatch(machine), [], None, 0.0, None

    def take(self, call, seconds, visit, visits):
        """Those of a visit, counted from 1; `seconds` are for all of them."""
        if self.takes_all_of(seconds):
            return
        meter, deadline = energy.meter_of(self.stopwatch.machine), time.perf_counter() + seconds / visits
        least = math.ceil(LEAST_SAMPLES * visit / visits)
        while True:
            self.seconds.append(self.stopwatch.once(call))
            count, is_late = len(self.seconds), time.perf_counter() >= deadline
            if count >= LEAST_SAMPLES:
                self.half = half_width(self.seconds)
            is_sure = self.half is not None and self.half <= SURE and count >= visit * (self.a_visit or 0)
            if self.takes_all_of(seconds) or count >= least and (is_sure or is_late or count >= MOST_SAMPLES * visit / visits):
                break
        self.a_visit = self.a_visit or count
        joules = meter.joules()
        self.joules = None if joules is None or self.joules is None else self.joules + joules

    def takes_all_of(self, seconds):
        """Such a run is not made three times."""
        return bool(self.seconds) and self.stopwatch.undisturbed[0] > seconds


def half_width(samples):
    """Of the median's interval, as a part of it: 1.57 interquartile ranges over the root of the count
    (McGill, Tukey and Larsen 1978)."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return 1.57 * (high - low) / math.sqrt(len(samples)) / middle


class Job:
    """One setting with so many layers, and what its visits found."""

    def __init__(self, machine, setting, layers, work, seconds, visits=VISITS):
        self.setting, self.layers, self.work, self.seconds, self.visits = setting, layers, work, seconds, visits
        self.taken, self.samples, self.visited, self.profiled, self.notes = [], Samples(machine), 0, None, list(work.notes)
        self.cache_bytes, self.is_decode = work.cache_bytes, bool(setting.get("context"))

    def visit(self, file):
        """One of them; behind the last one, or a run that takes all of the time, `profiled` is there."""
        self.visited += 1
        self._profile(self.visited / self.visits)
        is_long = min(own for _, own in self.taken) > self.seconds and not self.is_decode
        if self.visited == self.visits or is_long:
            self.profiled = self.work.end_profiling(self.taken, file)
        if not is_long:
            self.samples.take(self.work.plain(), self.seconds, self.visited, self.visits)
        else:
            self.samples.seconds = self.profiled.all_seconds
            self.samples.half = half_width(self.samples.seconds) if len(self.samples.seconds) >= LEAST_SAMPLES else None
            self.samples.joules = None
            self.notes.append(typical_run.UNDER_PROFILER)
        if self.profiled:
            self.work = None  # of which nothing is wanted any more, and which holds a model

    def _profile(self, part):
        seconds = min(self.seconds, MOST_DECODE_PROFILED) if self.is_decode else self.seconds
        if self.work.first and typical_run.is_all(self.work.first, seconds):
            self.taken = [self.work.first]
            return
        if self.layers is not None and not self.is_decode:  # what a layer takes is multiplied by all of them
            seconds *= typical_run.MUCH_TOO_LONG
        is_few = self.samples.stopwatch.machine.is_cuda and not self.is_decode
        most = MOST_PROFILED_ON_A_GPU if is_few else typical_run.MOST_RUNS
        typical_run.repeat(self.work.profiled_once, seconds, self.taken, part, most)
