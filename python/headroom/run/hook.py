"""Waits for `import torch`, and then does what the environment asks for. See docs/run.md.

`start()` costs a look at the script's text and one entry in sys.meta_path; a program that never
imports torch pays nothing else. After torch's own import, and before any code of the user's that
follows it, `session.begin(torch)` runs. An exception of ours never reaches the program.
"""

import os
import sys

from headroom.run import modules

MODES = ("run", "record", "serve", "off")
EXIT_OURS = 125


def complain(words):
    print(f"headroom: {words}", file=sys.stderr, flush=True)


class _Loader:
    """torch's own loader, with a call behind it. It takes itself away before torch runs."""

    def __init__(self, loader, then):
        self._loader = loader
        self._then = then

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


class _Finder:
    """Stands first in sys.meta_path until torch is imported."""

    def __init__(self, then):
        self._then = then
        self._is_asking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self._is_asking:
            return None
        self._is_asking = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec = find(name, path, target)
                if spec is not None:
                    break
            else:
                return None
        finally:
            self._is_asking = False
        if spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._torch_is_here)
        return spec

    def _torch_is_here(self, torch):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._then(torch)


def after_torch(then):
    """Calls then(torch) now, or right after the program's own `import torch`."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "_C"):
        then(torch)
    else:
        sys.meta_path.insert(0, _Finder(then))


def begin(torch, settings):
    try:
        with modules.in_place():
            from headroom.run import session
            session.begin(torch, settings)
    except Exception as error:
        complain(f"not installed: {type(error).__name__}: {error}")


_is_started = False


def start():
    """From the environment; once a process."""
    global _is_started
    mode = os.environ.get("HEADROOM_RUN_MODE", "")
    if _is_started or mode not in MODES:
        return
    _is_started = True
    if mode != "off":
        refuse_what_the_script_needs()
    after_torch(lambda torch: begin(torch, dict(os.environ)))


def refuse_what_the_script_needs():
    """Ends the process before the script begins where the script asks for what we cannot serve."""
    from headroom.run import needs
    accepted = os.environ.get("HEADROOM_RUN_ACCEPT", "").split(",")
    found = needs.look(accepted, os.environ)
    if not found:
        return
    if os.environ.get("LOCAL_RANK", "0") == "0":  # once a machine
        for need in found:
            complain(f"error: {need.place}: {need.why}")
        if needs.can_be_served(found):
            complain("headroom run --build-shim compiles what serves this (docs/run.md)")
        words = sorted({need.word for need in found if need.word})
        accept = f", or --accept {','.join(words)} where that is never reached" if words else ""
        complain(f"headroom run --off runs it with PyTorch's own allocator{accept}")
    os._exit(EXIT_OURS)
