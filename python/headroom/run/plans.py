"""Where plans are kept: one folder for each thing that determines them.

A plan depends on what the program does with memory: its script and arguments, PyTorch's version, the
devices, and how many ranks share the work. These are hashed into the folder's name; a readable copy
lies in it. What is not in the key (the script's content, a changed configuration file) may make a
kept plan fit badly: then requests fall back, the library notices, and makes another.
"""

import hashlib
import json
import os
import shutil
import sys

MOST_KEPT = 256  # folders; the longest unused go first
SCHEMA = "headroom.run.key/1"


def script_name():
    """What was started: the script's real path, or the module's name, or "-c"."""
    argv = getattr(sys, "argv", None) or [""]
    first = argv[0]
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name not in ("__main__", "__mp_main__"):
        return "-m " + spec.name
    return os.path.realpath(first) if first and os.path.exists(first) else first or "-c"


def key_of(torch_version, devices, world_size):
    key = {"schema": SCHEMA, "script": script_name(), "arguments": list(sys.argv[1:]),
           "torch": torch_version, "devices": devices, "world_size": world_size}
    order = os.environ.get("HEADROOM_RUN_STREAM_ORDER", "")
    return {**key, "stream_order": order} if order else key


def digest(key):
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def _drop_the_oldest(root):
    folders = []
    for entry in os.scandir(root):
        try:
            if entry.is_dir(follow_symlinks=False) and len(entry.name) == 24:
                folders.append((entry.stat().st_mtime, entry.path))
        except OSError:  # another rank has just dropped it
            pass
    for _, path in sorted(folders, reverse=True)[MOST_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def folder_for(root, key):
    """Made where it is not there; None where it cannot be, and then nothing is kept."""
    folder = os.path.join(root, digest(key))
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"key.{os.getpid()}"), "w", encoding="utf-8") as file:
            json.dump(key, file, indent=1)
        os.replace(file.name, os.path.join(folder, "key.json"))
        os.utime(folder)
        _drop_the_oldest(root)
    except OSError:
        return None
    return folder


def kept(folder, rank, devices):
    """Whether a plan of this rank is there."""
    return any(os.path.isfile(os.path.join(folder, f"rank{rank}-cuda{device}.plan"))
               for device in range(devices))


def template(folder):
    """As the library takes it: %r is the rank, %d the device, %% a %."""
    return os.path.join(folder.replace("%", "%%"), "rank%r-cuda%d.plan")
