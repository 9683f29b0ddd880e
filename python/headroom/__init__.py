"""Headroom's Python side: the planned allocator inside PyTorch, the module tracer, the oracle.

    import headroom
    headroom.enable()        # before CUDA is used; then as under `headroom run` (docs/run.md)

Importing this package imports neither torch nor transformers: `headroom.fake_cuda.install()` has
to run before torch is imported for the first time in a process.
"""


def enable(mode="run", *, folder="", plan="", library="", accept=()):
    """Puts the planned allocator into this process's PyTorch; what `headroom run` does, from Python.

    mode    "run" records, plans and serves; "record" only records; "serve" takes `plan` alone
    folder  where recordings go, or where plans are kept; "" keeps no plan
    accept  what the script may ask for although it cannot be served (headroom help run)

    To be called before CUDA is used. Raises RuntimeError with the reason where it cannot be done;
    nothing was changed then. Works before and after `import torch`; before, the reason of a refusal
    is told on stderr instead, once torch is imported. Child processes are not affected.
    """
    from headroom.run import enabling
    enabling.enable(mode, folder, plan, library, accept)
