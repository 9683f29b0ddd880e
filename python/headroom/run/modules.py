"""Under `headroom run` our package is loaded into every Python, and a program may have a module of
its own by that name. So ours stands in sys.modules only while we work. Who has Headroom installed
and imports it gets another copy; what is at work already is known by a mark on torch (session.py).
"""

import contextlib
import os
import sys

NAME = __name__.partition(".")[0]
_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_ours = {}  # by name, while they are aside


def _take():
    """What stands in sys.modules under our name."""
    names = [name for name in sys.modules if name == NAME or name.startswith(NAME + ".")]
    return {name: sys.modules.pop(name) for name in names}


@contextlib.contextmanager
def _in_place():
    theirs = _take()
    sys.modules.update(_ours)
    sys.path.insert(0, _PARENT)
    try:
        yield
    finally:
        sys.path.remove(_PARENT)
        _ours.update(_take())
        sys.modules.update(theirs)


def put_aside():
    """From here on the program's; what the hook does later has them back for as long."""
    _ours.update(_take())


def in_place():
    """A context in which our modules can be imported, wherever they are now."""
    return _in_place() if _ours else contextlib.nullcontext()
