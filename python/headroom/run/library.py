"""The C interface of libheadroom_torch.so (src/runtime/abi.h), through ctypes.

Loading it makes no CUDA call and needs no driver. Loaded libraries stay: PyTorch frees tensors
while the process ends.
"""

import ctypes
import json
import os

ABI_VERSION = 1
COPIES_NAME_DEVICES = 4  # HEADROOM_FLAG_COPIES_NAME_DEVICES
_SHORT_TEXT = 16 << 10  # bytes: a report of several devices
MODES = {"run": 0, "record": 1, "serve": 2, "off": 3}


class LibraryUnavailable(RuntimeError):
    """There is no library, or not one of this version; the message says which."""


class Figure(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("current", "peak", "allocated", "freed")]


FIGURES = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
           "active_bytes", "inactive_split_bytes", "requested_bytes")
COUNTS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc",
          "num_device_free")
OURS = ("planned_requests", "reused_requests", "general_requests", "fallback_requests",
        "is_planned")


class Statistics(ctypes.Structure):
    _fields_ = ([("struct_bytes", ctypes.c_uint32), ("reserved", ctypes.c_uint32)] +
                [(name, Figure) for name in FIGURES] +
                [(name, ctypes.c_int64) for name in COUNTS + OURS])


class Configuration(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("mode", ctypes.c_int32),
                ("plan_path", ctypes.c_char_p), ("plan_out", ctypes.c_char_p),
                ("record_path", ctypes.c_char_p), ("driver_path", ctypes.c_char_p),
                ("rank", ctypes.c_int32), ("world_size", ctypes.c_int32),
                ("flags", ctypes.c_int64)]


# name: (result, arguments). What PyTorch calls by address has no entry.
_FUNCTIONS = {
    "headroom_abi_version": (ctypes.c_int, []),
    "headroom_version": (ctypes.c_char_p, []),
    "headroom_configure": (ctypes.c_int, [ctypes.POINTER(Configuration)]),
    "headroom_error": (ctypes.c_char_p, []),
    "headroom_probe_driver": (ctypes.c_int, []),
    "headroom_iteration": (None, [ctypes.c_int]),
    "headroom_expect_iterations": (None, []),
    "headroom_get_statistics": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(Statistics)]),
    "headroom_reset_peak_statistics": (None, [ctypes.c_int]),
    "headroom_reset_accumulated_statistics": (None, [ctypes.c_int]),
    "headroom_get_memory_fraction": (ctypes.c_double, [ctypes.c_int]),
    "headroom_memory_info": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_int64),
                                            ctypes.POINTER(ctypes.c_int64)]),
    "headroom_report": (ctypes.c_int64, [ctypes.c_char_p, ctypes.c_int64]),
    "headroom_snapshot": (ctypes.c_int64, [ctypes.c_int, ctypes.c_char_p, ctypes.c_int64]),
    "headroom_on_out_of_memory": (None, [ctypes.c_void_p, ctypes.c_void_p]),
    "headroom_event_recorded": (ctypes.c_uint64, [ctypes.c_int, ctypes.c_void_p]),
    "headroom_event_waited": (None, [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64]),
    "headroom_forbid_joins": (None, []),
    "headroom_finish": (None, []),
}


def find():
    """Where the library is: named, or beside this package; "" where it is not."""
    named = os.environ.get("HEADROOM_RUN_LIBRARY") or os.environ.get("HEADROOM_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                          "libheadroom_torch.so")
    return beside if os.path.isfile(beside) else ""


class Library:
    """One loaded library. REQUIRES: one a process."""

    def __init__(self, path):
        if not path:
            raise LibraryUnavailable("libheadroom_torch.so is not beside this package; name it in "
                                     "HEADROOM_LIBRARY")
        try:
            self.handle = ctypes.CDLL(path)
        except OSError as error:
            raise LibraryUnavailable(f"{path} cannot be loaded: {error}") from None
        self.path = path
        try:
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(self.handle, name)
                function.restype, function.argtypes = result, arguments
        except AttributeError as error:
            raise LibraryUnavailable(f"{path} is another version: {error}") from None
        found = self.handle.headroom_abi_version()
        if found != ABI_VERSION:
            raise LibraryUnavailable(f"{path} has interface {found}, this package needs "
                                     f"{ABI_VERSION}: install both anew")

    def address(self, name):
        """Of a function, for PyTorch's setters. An AttributeError names one that is missing."""
        return ctypes.cast(getattr(self.handle, name), ctypes.c_void_p).value

    def configure(self, mode, plan_path="", plan_out="", record_path="", rank=0, world_size=1,
                  flags=0):
        """"" where it was taken, else why not."""
        def text(words):
            return words.encode() if words else None
        configuration = Configuration(
            ctypes.sizeof(Configuration), MODES[mode], text(plan_path), text(plan_out),
            text(record_path), text(os.environ.get("HEADROOM_CUDA_DRIVER", "")), rank, world_size,
            flags)
        if self.handle.headroom_configure(ctypes.byref(configuration)) == 0:
            return ""
        return self.handle.headroom_error().decode(errors="replace")

    def statistics(self, device):
        """Of one device, or None where it was not used."""
        statistics = Statistics(struct_bytes=ctypes.sizeof(Statistics))
        if self.handle.headroom_get_statistics(device, ctypes.byref(statistics)) != 0:
            return None
        return statistics

    def memory_info(self, device):
        """(free, total) in bytes, or None."""
        free, total = ctypes.c_int64(), ctypes.c_int64()
        if self.handle.headroom_memory_info(device, ctypes.byref(free), ctypes.byref(total)) != 0:
            return None
        return free.value, total.value

    @staticmethod
    def _text(function, *arguments):
        """One call where it is short: each puts all of it into words anew."""
        needed = _SHORT_TEXT
        while True:
            buffer = ctypes.create_string_buffer(needed + 1)
            found = function(*arguments, buffer, needed + 1)
            if found <= needed:
                return buffer.value.decode(errors="replace")
            needed = found  # and it may grow between the calls

    def report(self):
        return json.loads(self._text(self.handle.headroom_report) or "{}")

    def snapshot(self, device):
        return json.loads(self._text(self.handle.headroom_snapshot, device) or "[]")

    def reset_peak(self, device):
        self.handle.headroom_reset_peak_statistics(device)

    def reset_accumulated(self, device):
        self.handle.headroom_reset_accumulated_statistics(device)

    def memory_fraction(self, device):
        return self.handle.headroom_get_memory_fraction(device)

    def expect_iterations(self):
        self.handle.headroom_expect_iterations()

    def order_functions(self):
        """(recorded, waited): headroom_event_recorded(device, stream) and headroom_event_waited(device,
        stream, event). Python's lock is held: they take less time than giving it up does."""
        handle = ctypes.PyDLL(self.path)
        found = []
        for name in ("headroom_event_recorded", "headroom_event_waited"):
            function = getattr(handle, name)
            function.restype, function.argtypes = _FUNCTIONS[name]
            found.append(function)
        return found

    def forbid_joins(self):
        self.handle.headroom_forbid_joins()

    def iteration(self):
        self.handle.headroom_iteration(-1)

    def finish(self):
        self.handle.headroom_finish()
