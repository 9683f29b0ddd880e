"""Found by Python at its start, as `headroom run` puts this folder first on PYTHONPATH.

It starts the hook where the environment says so, takes this folder off sys.path again, so that the
program sees the path that it would see without us, and runs the sitecustomize that would have been
found, if there is one. Whatever goes wrong here is told on stderr and does not stop the program.
"""

import os
import sys


def _load_package(folder):
    """The package `headroom` around this file, without its parent on sys.path."""
    if "headroom" in sys.modules:
        return
    import importlib.util
    spec = importlib.util.spec_from_file_location(
        "headroom", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules["headroom"] = module
    spec.loader.exec_module(module)


def _start(here):
    if not os.environ.get("HEADROOM_RUN_MODE"):
        return
    try:
        _load_package(os.path.dirname(os.path.dirname(here)))
        from headroom.run import hook
        hook.start()
    except Exception as error:  # the program is worth more than our help
        print(f"headroom: not started: {type(error).__name__}: {error}", file=sys.stderr)


def _chain():
    """The sitecustomize behind ours: in our place in sys.modules, as `import` leaves it there."""
    import importlib.util
    ours = sys.modules.pop("sitecustomize", None)
    spec = importlib.util.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path
               if not entry or os.path.abspath(entry) != _here]
sys.path_importer_cache.pop(_here, None)
_start(_here)
_chain()
