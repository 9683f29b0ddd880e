"""The glue between PyTorch and libheadroom_torch.so: what `headroom run` and headroom.enable() do.

Nothing here is imported by `import headroom`, and nothing here imports torch: `hook` waits for the
program to do so. In the order in which a process meets them:

  start/sitecustomize.py  Python's own start; runs `hook` and then the user's sitecustomize
  hook.py                 what happens before and right after `import torch`
  modules.py              ours in sys.modules, and a program's own `headroom`
  needs.py                a look at the script for what our allocator cannot serve
  install.py              the swap, with everything checked before it
  library.py              the C interface of libheadroom_torch.so
  statistics.py           torch.cuda's memory functions, answered by the library
  unavailable.py          what cannot be answered says so where it is used
  shim/                   PyTorch's own class of allocators over the library, compiled on demand
  plans.py                where plans are kept, by what determines them
  setting.py              --measure: what the run was, as far as it can be seen
  report.py               what the process tells `headroom run`, and when
  figures.py, notes.py    of each device, and what went otherwise than asked
"""
