"""torch.cuda's memory functions, answered by the library: replacements for torch._C._cuda_*.

PyTorch's Python functions (memory_allocated, memory_stats, memory_summary, memory_snapshot, ...) look
these up in torch._C when they are called, so replacing them there reaches every caller in Python.
C++ callers ask the allocator itself, and get PyTorch's own refusal, but from the shim: with it
nothing here is needed but the answers about history. torch.accelerator's questions
go to whatever allocator was registered first, which is PyTorch's own also after a swap (2.13), so
they are answered here too where the accelerator is CUDA.

Shapes as in torch/csrc/cuda/Module.cpp of PyTorch 2.13. Our allocator has one pool, which is shown
as the large one.
"""

import os
import warnings

from headroom.run.library import COUNTS, FIGURES

_ZERO = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


def _one_pool(figure):
    values = {name: getattr(figure, name) for name in _ZERO} if figure is not None else dict(_ZERO)
    return {"all": values, "small_pool": dict(_ZERO), "large_pool": dict(values)}


def nested(statistics):
    """What torch._C._cuda_memoryStats returns; zeros where the device was not used."""
    result = {name: _one_pool(getattr(statistics, name, None)) for name in FIGURES}
    result.update({name: getattr(statistics, name, 0) for name in COUNTS})
    # Of PyTorch's allocator alone: blocks are never kept from being split, and none is oversize.
    result.update(max_split_size=-1, num_oom_rejections=0, oversize_allocations=dict(_ZERO),
                  oversize_segments=dict(_ZERO), reserved_bytes_by_private_pools={})
    return result


class LifetimePeaks:
    """Peaks since the process began, whatever the program resets."""

    def __init__(self):
        self._before = {}

    def of(self, device, name, peak):
        return max(peak, self._before.get((device, name), 0))

    def keep(self, device, allocated, reserved):
        for name, peak in (("allocated_bytes", allocated), ("reserved_bytes", reserved)):
            self._before[device, name] = self.of(device, name, peak)


peaks = LifetimePeaks()


def _allocator_settings():
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return {"PYTORCH_CUDA_ALLOC_CONF": next((os.environ[n] for n in names if n in os.environ), ""),
            "max_split_size": -1, "garbage_collection_threshold": 0.0, "expandable_segments": False,
            "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
            "pinned_use_cuda_host_register": False, "roundup_power2_divisions": {},
            "allocator": "headroom"}


class _Answers:
    def __init__(self, torch, library):
        self._torch = torch
        self._library = library
        self._has_history = False

    def memory_stats(self, device):
        return nested(self._library.statistics(device))

    def reset_peak(self, device):
        statistics = self._library.statistics(device)
        if statistics is not None:
            peaks.keep(device, statistics.allocated_bytes.peak, statistics.reserved_bytes.peak)
        self._library.reset_peak(device)

    def reset_accumulated(self, device):
        self._library.reset_accumulated(device)

    def snapshot(self, question=None):
        """Segments and blocks of every device, or of one pool; no history of events."""
        devices = self._torch.cuda.device_count()
        segments = [segment for device in range(devices)
                    for segment in self._library.snapshot(device)]
        for segment in segments:
            pool = segment.get("segment_pool_id")
            segment["segment_pool_id"] = tuple(pool) if pool is not None else (0, 0)
        if question is not None and tuple(question[:2]) != (0, 0):
            segments = [s for s in segments if s["segment_pool_id"] == tuple(question[:2])]
        return {"segments": segments, "device_traces": [[] for _ in range(devices)],
                "allocator_settings": _allocator_settings(), "external_annotations": []}

    def record_history(self, enabled=None, *_, **__):
        self._has_history = False
        if enabled:
            warnings.warn("under headroom run torch.cuda.memory._record_memory_history keeps no "
                          "history; headroom run --record DIR does", stacklevel=3)

    def is_history_enabled(self):
        return self._has_history

    def memory_fraction(self, device):
        return self._library.memory_fraction(device)

    # torch.accelerator

    def _is_cuda(self):
        current = self._torch._C._get_accelerator() if hasattr(
            self._torch._C, "_get_accelerator") else None
        return current is None or current.type == "cuda"

    def _for_accelerator(self, name, ours):
        theirs = getattr(self._torch._C, name, None)

        def answer(*arguments):
            return ours(*arguments) if self._is_cuda() or theirs is None else theirs(*arguments)
        return answer

    def _memory_info(self, device):
        return self._library.memory_info(device) or self._torch.cuda.mem_get_info(device)

    def accelerator(self):
        torch = self._torch
        ours = {
            "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
            "_accelerator_emptyCache": lambda: torch._C._cuda_emptyCache(),
            "_accelerator_getDeviceStats": self.memory_stats,
            "_accelerator_resetAccumulatedStats": self.reset_accumulated,
            "_accelerator_resetPeakStats": self.reset_peak,
            "_accelerator_getMemoryInfo": self._memory_info,
        }
        return {name: self._for_accelerator(name, function) for name, function in ours.items()}


def answers(torch, library):
    """Name in torch._C: function that takes its place. Names that a version lacks do no harm."""
    ours = _Answers(torch, library)
    return {
        **history_answers(torch, library),
        "_cuda_memoryStats": ours.memory_stats,
        "_cuda_resetPeakMemoryStats": ours.reset_peak,
        "_cuda_resetAccumulatedMemoryStats": ours.reset_accumulated,
        "_cuda_memorySnapshot": ours.snapshot,
        "_cuda_getMemoryFraction": ours.memory_fraction,
        **ours.accelerator(),
    }


def history_answers(torch, library):
    """Nothing keeps a history of events but `headroom run --record`."""
    ours = _Answers(torch, library)
    return {
        "_cuda_record_memory_history": ours.record_history,
        "_cuda_record_memory_history_legacy": ours.record_history,
        "_cuda_recordMemoryHistory": ours.record_history,
        "_cuda_isHistoryEnabled": ours.is_history_enabled,
    }


def keep_peaks_of_torch(torch):
    """For --off and the shim: PyTorch's own functions answer, and what a reset forgets is kept."""
    def keeping(reset):
        def keep_and_reset(device):
            stats = torch._C._cuda_memoryStats(device)
            peaks.keep(device, stats["allocated_bytes"]["all"]["peak"],
                       stats["reserved_bytes"]["all"]["peak"])
            return reset(device)
        return keep_and_reset
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, keeping(getattr(torch._C, name)))
