"""One process under Headroom, from right after `import torch` to its end.

State: installed or not, and why; used, once CUDA was initialised; ended. A forked child begins
anew: it shares the swap, which is final, but writes a report of its own, and only if it uses CUDA.
"""

import atexit
import functools
import os
import sys

from headroom.run import figures, install, library, plans, report, statistics, streams
from headroom.run.ranks import rank_and_world

_MARK = "_headroom_session"  # of torch: there may be several copies of this module


class Session:
    def __init__(self, torch, environment):
        self.torch = torch
        self.mode = environment.get("HEADROOM_RUN_MODE", "run")
        self.folder = environment.get("HEADROOM_RUN_FOLDER", "")
        self.plan = environment.get("HEADROOM_RUN_PLAN", "")
        self.measured_file = environment.get("HEADROOM_RUN_MEASURE", "")
        self.library = None
        self.has_shim = False
        self.iterations = 0
        self.last_surroundings = {}
        self.plan_is_kept = False
        self.is_used = False
        self.setting = None
        self.report = report.Report(torch, environment.get("HEADROOM_RUN_REPORTS", ""),
                                    self.figures, self.note_what_the_library_says)

    # What it does to torch.

    def begin(self):
        torch = self.torch
        atexit.register(self.end)
        if not install.has_cuda(torch):
            self.report.reason = "this PyTorch is built without CUDA"
            return
        if self.mode == "off":
            self.report.outcome = "off"
            statistics.keep_peaks_of_torch(torch)
        else:
            self.install()
        self.watch_the_first_use()
        self.watch_steps()
        os.register_at_fork(after_in_child=self.begin_anew)
        if "multiprocessing.util" in sys.modules:  # torch imports it
            sys.modules["multiprocessing.util"].register_after_fork(self, _end_with_multiprocessing)

    def install(self):
        try:
            ours = library.Library(library.find())
            self.has_shim = install.install(self.torch, ours, self.report.notes, os.environ)
        except (install.Refused, library.LibraryUnavailable) as refusal:
            self.report.outcome, self.report.reason = "refused", str(refusal)
            statistics.keep_peaks_of_torch(self.torch)
            return
        self.library = ours
        order = os.environ.get("HEADROOM_RUN_STREAM_ORDER", "")
        if order not in ("", "told", "off"):
            self.report.notes.append(f"HEADROOM_RUN_STREAM_ORDER knows no {order!r}: told, off, or nothing")
        if order == "told":
            ours.forbid_joins()
        if order != "off":
            streams.follow(self.torch, ours)
        self.report.outcome = "recorded" if self.mode == "record" else "served"

    def watch_the_first_use(self):
        """CUDA's initialisation is where devices become known, and before any allocation."""
        initialise = self.torch._C._cuda_init

        def then_configure():
            result = initialise()
            self.first_use()
            return result
        self.torch._C._cuda_init = then_configure

    def watch_steps(self):
        try:
            from torch.optim.optimizer import register_optimizer_step_post_hook
        except ImportError:
            return  # PyTorch 1.x and 2.0's first days; the library finds iterations by itself
        register_optimizer_step_post_hook(self.step)
        if self.library is not None:
            self.tell_of_optimizers()
        if self.measured_file:
            from headroom.run import setting
            self.setting = setting.Setting(self.torch, self.measured_file)

    def tell_of_optimizers(self):
        """Where there is an optimizer, what repeats before its first step is no iteration."""
        optimizer, library = self.torch.optim.Optimizer, self.library
        begin = optimizer.__init__

        @functools.wraps(begin)
        def begin_and_tell(this, *arguments, **options):
            library.expect_iterations()
            begin(this, *arguments, **options)
        optimizer.__init__ = begin_and_tell

    # What then happens.

    def first_use(self):
        if self.is_used:
            return
        self.is_used = True
        if self.library is not None:
            try:
                self.configure()
            except Exception as error:
                self.report.notes.append(f"no plan is kept: {type(error).__name__}: {error}")
        self.report.write()
        self.report.keep_up_to_date()

    def configure(self):
        torch = self.torch
        rank, world = rank_and_world(torch)
        count = torch.cuda.device_count()
        paths = {"plan_path": "", "plan_out": "", "record_path": ""}
        if self.mode == "record":
            paths["record_path"] = self.recording_path(rank, count)
        elif self.mode == "serve":
            paths["plan_path"] = self.plan
        elif self.folder:
            self.keep_plans(paths, rank or 0, world, count)
        flags = library.COPIES_NAME_DEVICES if self.has_shim else 0
        refused = self.library.configure(self.mode, rank=rank or 0, world_size=world, flags=flags,
                                         **paths)
        if refused:
            self.report.notes.append(f"the allocator was not configured: {refused}")

    def recording_path(self, rank, count):
        name = f"rank%r-cuda%d-{os.getpid()}.hrec"
        self.report.recordings = [
            os.path.join(self.folder, name.replace("%r", str(rank or 0)).replace("%d", str(device)))
            for device in range(count)]
        return os.path.join(self.folder.replace("%", "%%"), name)

    def keep_plans(self, paths, rank, world, count):
        torch = self.torch
        devices = []
        for device in range(count):
            properties = torch.cuda._get_device_properties(device)
            devices.append([properties.name, properties.total_memory])
        folder = plans.folder_for(self.folder,
                                  plans.key_of(str(torch.__version__), devices, world))
        if folder is None:
            self.report.notes.append(f"no plan is kept: {self.folder} cannot be written")
            return
        paths["plan_out"] = plans.template(folder)
        if plans.kept(folder, rank, count):
            paths["plan_path"] = paths["plan_out"]
            self.plan_is_kept = True

    def step(self, optimizer, *_):
        """After each optimizer's step, in every version of it that PyTorch calls hooks for."""
        self.iterations += 1
        if not self.is_used:
            return
        if self.library is not None:
            self.library.iteration()
        if self.setting is not None:
            self.setting.look(optimizer)
        if self.iterations == 1:
            self.report.write()

    def note_what_the_library_says(self):
        """Also early: the library forgets why a plan was refused once another one serves."""
        if self.library is None or not self.is_used:
            return
        for about, words in figures.notes_of_library(self.library):
            self.report.notes.say(about, words)

    def figures(self, asks):
        # Within CUDA's initialisation PyTorch may not be asked anything.
        if not self.is_used or not self.torch.cuda.is_initialized():
            return []
        if self.library is not None:
            return figures.figures_of_library(self.torch, self.library, self.iterations,
                                              self.plan_is_kept, self.has_shim)
        return figures.figures_of_torch(self.torch, self.iterations,
                                        functools.partial(self.surroundings, asks))

    def surroundings(self, asks, device, reserved):
        """(total bytes, bytes outside PyTorch's allocator): both of when the driver was asked, as
        what was reserved then is part of the sum. PyTorch's question may not be asked while another
        thread captures a graph."""
        if asks:
            free, total = self.torch.cuda.mem_get_info(device)
            self.last_surroundings[device] = total, max(total - free - reserved, 0)
        return self.last_surroundings.get(device, (None, None))

    def end(self):
        if self.setting is not None:
            self.report.setting = self.setting.columns()
        if self.library is not None and self.is_used:
            self.library.finish()
        if self.report.outcome != "refused" and not self.is_used:
            self.report.outcome = "nothing"
        self.report.recordings = [path for path in self.report.recordings if os.path.isfile(path)]
        self.report.write_last()

    def begin_anew(self):
        """In a forked child. One that uses CUDA by itself is reported by itself; its parent's
        figures are its parent's."""
        self.is_used = False
        self.iterations = 0
        self.report.recordings = []
        self.report.begin_anew()

    def end_child(self):
        if self.is_used:
            self.end()


def _end_with_multiprocessing(session):
    """multiprocessing's forked children clear their finalizers, run this, and end without atexit."""
    util = sys.modules["multiprocessing.util"]
    util.Finalize(None, session.end_child, exitpriority=-100)


def begin(torch, environment):
    """Once a process; a second call changes nothing and gives the session that is there."""
    session = getattr(torch, _MARK, None)
    if session is None:
        session = Session(torch, environment)
        setattr(torch, _MARK, session)
        session.begin()
    return session
