"""headroom.enable(): the hook without `headroom run` around it."""

import os
import sys

from headroom.run import hook, needs, session


def _check(mode, folder, plan, accept):
    if mode not in ("run", "record", "serve"):
        raise ValueError(f"mode {mode!r}: run, record or serve")
    if mode == "record" and not folder:
        raise ValueError("mode record needs a folder")
    if mode == "serve" and not plan:
        raise ValueError("mode serve needs a plan: plan=FILE")
    if mode == "serve" and "%" not in plan and not os.access(plan, os.R_OK):
        raise ValueError(f"the plan {plan!r} cannot be read")
    found = needs.look(list(accept), os.environ)
    if found:
        words = "; ".join(f"{need.place}: {need.why}" for need in found)
        raise RuntimeError(f"{words}. accept=... takes it on where that is never reached")


def enable(mode, folder, plan, library, accept):
    _check(mode, folder, plan, accept)
    settings = {"HEADROOM_RUN_MODE": mode, "HEADROOM_RUN_FOLDER": folder,
                "HEADROOM_RUN_PLAN": plan,
                "HEADROOM_RUN_REPORTS": os.environ.get("HEADROOM_RUN_REPORTS", "")}
    if folder:
        os.makedirs(folder, exist_ok=True)
    if library:
        os.environ["HEADROOM_LIBRARY"] = library
    if "torch" not in sys.modules:
        hook.after_torch(lambda torch: hook.begin(torch, settings))
        return
    begun = session.begin(sys.modules["torch"], settings)
    if begun.library is None and begun.report.reason:
        raise RuntimeError(f"not installed: {begun.report.reason}")
    if begun.mode != mode:
        raise RuntimeError(f"this process is under Headroom already, in mode {begun.mode}")
