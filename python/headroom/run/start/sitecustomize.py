"""Found by Python at its start, as `headroom run` puts this folder first on PYTHONPATH.

It starts the hook where the environment says so, takes this folder off sys.path again, so that the
program sees the path that it would see without us, and runs the sitecustomize that would have been
found, if there is one. Whatever goes wrong here is told on stderr and does not stop the program.
"""

import os
import sys


def _load_package(folder):
    """The package `headroom` around this file, without leaving its parent on sys.path.
    (hook.modules.put_aside() takes it out of sys.modules again.)"""
    parent = os.path.dirname(folder)
    sys.path.insert(0, parent)
    try:
        import headroom.run.hook
        return headroom.run.hook
    finally:
        sys.path.remove(parent)


def _start(here):
    if not os.environ.get("HEADROOM_RUN_MODE"):
        return
    try:
        hook = _load_package(os.path.dirname(os.path.dirname(here)))
        hook.start()
        hook.modules.put_aside()
    except Exception as error:  # the program is worth more than our help
        print(f"headroom: not started: {type(error).__name__}: {error}", file=sys.stderr)


def _chain():
    """The sitecustomize behind ours: in our place in sys.modules, where `import` leaves it."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401  (another one than this file, which is off the path)
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path
               if not entry or os.path.abspath(entry) != _here]
sys.path_importer_cache.pop(_here, None)
_start(_here)
_chain()
