"""What torchtitan's own parser makes of commands: a JSON list of them in, a JSON list out.

The registry's modules import Triton, TensorBoard and datasets, of which a parser needs nothing: where they are
not installed, names stand in for them.
"""

import json
import sys

import stand_ins


def parts_of(config):
    """How many parts its pipeline cuts the model into; its own checks of the degrees, and of the parts, on eight GPUs."""
    from torchtitan.distributed.parallel_dims import ParallelDims
    from torchtitan.distributed.pipeline_parallel import _get_pipeline_metadata

    dims = ParallelDims.from_config(config.parallelism, world_size=8)
    return _get_pipeline_metadata(dims, config.parallelism, config.model_spec.model)[0] if dims.pp > 1 else 1


def parsed(manager, arguments):
    config = manager.parse_args(arguments)
    config.model_spec.model.update_from_config(config=config)  # which refuses what the model cannot do
    policy = config.activation_checkpoint
    return {
        "flavor": config.model_spec.flavor,
        "batch": config.training.local_batch_size, "global_batch": config.training.global_batch_size,
        "seq": config.training.seq_len, "dtype": config.training.dtype,
        "param": config.training.mixed_precision_param, "reduce": config.training.mixed_precision_reduce,
        "norm": config.training.max_norm, "cuda_graphs": not config.training.disable_cuda_graphs,
        "replicas": config.parallelism.data_parallel_replicate_degree,
        "shards": config.parallelism.data_parallel_shard_degree,
        "tensor": config.parallelism.tensor_parallel_degree, "context": config.parallelism.context_parallel_degree,
        "stages": config.parallelism.pipeline_parallel_degree, "schedule": config.parallelism.pipeline_parallel_schedule,
        "parts": parts_of(config),
        "micro_batch": config.parallelism.pipeline_parallel_microbatch_size,
        "sequence_parallel": config.parallelism.enable_sequence_parallel,
        "loop": config.optimizer.implementation, "chunks": config.loss.num_chunks,
        "checkpointing": policy and type(policy).__qualname__.split(".")[0], "compile": config.compile.enable,
        "offload": config.training.enable_cpu_offload,
    }


def main():
    stand_ins.install("triton", "tensorboard", "datasets")
    from torchtitan.config.manager import ConfigManager

    json.dump([parsed(ConfigManager(), arguments) for arguments in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
