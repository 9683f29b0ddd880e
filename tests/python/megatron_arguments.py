"""What Megatron-LM's own parser makes of commands, and its checks of them: a JSON list in, a JSON list out.

Each command is what stands behind pretrain_gpt.py, and its environment; what comes out are all arguments after
Megatron-LM's checks, which fill in what follows from others. Modules of layers that the parser takes its arguments
from import Triton, of which it needs nothing.
"""

import json
import os
import sys
import types
import typing

import stand_ins
import torch
import typing_extensions


def parsed(command, module):
    os.environ.update(command["environment"])
    sys.argv = ["pretrain_gpt.py", *command["words"]]
    args = module.parse_args()
    module.validate_args(args)
    if args.pipeline_model_parallel_layout:  # which has several spellings
        layout = module.PipelineParallelLayerLayout.parse_str_to_list(args.pipeline_model_parallel_layout)
        args.pipeline_model_parallel_layout = layout
    return {name: str(value) for name, value in vars(args).items()}


def main():
    stand_ins.install("triton")
    typing.override = typing_extensions.override  # Python 3.12's, all that Megatron-LM's parser needs of it
    from megatron.training import arguments as module

    torch.cuda.get_device_properties = lambda device=None: types.SimpleNamespace(major=9, minor=0)  # Hopper's
    commands = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr  # where Megatron-LM's own words go
    json.dump([parsed(command, module) for command in commands], answers)


if __name__ == "__main__":
    main()
