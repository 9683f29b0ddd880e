"""Thin Python glue of Headroom: the oracle of eager PyTorch's memory, and the module tracer.

Importing this package imports neither torch nor transformers: `headroom.fake_cuda.install()` has
to run before torch is imported for the first time in a process.
"""
