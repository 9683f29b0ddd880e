"""The installed torch, as if it were built with CUDA: put before it on PYTHONPATH by tests.

This file takes the place of torch/__init__.py, runs the installed one in its own namespace, and then
adds to torch._C what a CUDA build has and our glue uses (stand_in_cuda.py). What follows `import
torch`, our hook among it, sees one whole module.
"""

import os as _os
import sys as _sys

_here = _os.path.dirname(_os.path.abspath(__file__))
_real = next(_path for _entry in _sys.path
             if (_path := _os.path.join(_entry or ".", "torch")) != _here
             and _os.path.isfile(_os.path.join(_path, "__init__.py")))
__file__ = _os.path.join(_real, "__init__.py")
__path__[:] = [_real]
__spec__.submodule_search_locations = [_real]
with open(__file__, encoding="utf-8") as _source:
    exec(compile(_source.read(), __file__, "exec"), globals())

import stand_in_cuda as _stand_in_cuda  # noqa: E402

_stand_in_cuda.install(_sys.modules[__name__])
