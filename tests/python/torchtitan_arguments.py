"""What torchtitan's own parser makes of a command: its arguments in, JSON out.

The registry's modules import Triton and TensorBoard, of which a parser needs nothing: where they are
not installed, names stand in for them. A process of its own, since nothing takes that back.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys

import torch._dynamo  # noqa: F401  (before the stand-ins: it asks whether Triton is there)
import torch.utils._triton

NOT_NEEDED = [name for name in ("triton", "tensorboard") if importlib.util.find_spec(name) is None]


class Anything:
    """A name that nobody asks anything of; as a decorator it leaves the function."""

    def __init__(self, *arguments, **named):
        pass

    def __call__(self, *arguments, **named):
        return arguments[0] if arguments and callable(arguments[0]) else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, key):
        return self


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        stands_in = name.split(".")[0] in NOT_NEEDED
        stands_in = stands_in or ("tensorboard" in NOT_NEEDED and name.startswith("torch.utils.tensorboard"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if stands_in else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__version__ = "3.4.0"

        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (Anything,), {}) if name[0].isupper() else Anything()
        module.__getattr__ = attribute


def main():
    sys.meta_path.insert(0, StandIns())
    if "triton" in NOT_NEEDED:
        torch.utils._triton.has_triton_package = lambda: False
    from torchtitan.config.manager import ConfigManager

    config = ConfigManager().parse_args(sys.argv[1:])
    policy = config.activation_checkpoint
    json.dump({
        "flavor": config.model_spec.flavor,
        "batch": config.training.local_batch_size, "global_batch": config.training.global_batch_size,
        "seq": config.training.seq_len, "dtype": config.training.dtype,
        "param": config.training.mixed_precision_param, "reduce": config.training.mixed_precision_reduce,
        "norm": config.training.max_norm, "cuda_graphs": not config.training.disable_cuda_graphs,
        "replicas": config.parallelism.data_parallel_replicate_degree,
        "shards": config.parallelism.data_parallel_shard_degree,
        "tensor": config.parallelism.tensor_parallel_degree, "context": config.parallelism.context_parallel_degree,
        "stages": config.parallelism.pipeline_parallel_degree, "schedule": config.parallelism.pipeline_parallel_schedule,
        "micro_batch": config.parallelism.pipeline_parallel_microbatch_size,
        "sequence_parallel": config.parallelism.enable_sequence_parallel,
        "loop": config.optimizer.implementation, "chunks": config.loss.num_chunks,
        "checkpointing": policy and type(policy).__qualname__.split(".")[0], "compile": config.compile.enable,
        "offload": config.training.enable_cpu_offload,
    }, sys.stdout)


if __name__ == "__main__":
    main()
