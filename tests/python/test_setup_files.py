"""What `fit --emit` writes, read by the real parsers: accelerate's, and DeepSpeed's where it is installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

QUESTION = ["fit", "openai-community/gpt2", "--device", "a100-sxm-80gb", "--batch", "2", "--seq", "128",
            "--search", "false", "--json"]


def emit(kind, path, *flags):
    done = subprocess.run([os.environ["HEADROOM_BINARY"], *QUESTION, *flags, "--emit", f"{kind}={path}"],
                          capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["emitted"]


CASES = {
    "ddp": (["--method", "ddp:4", "--mixed-precision", "bf16"], "MULTI_GPU", 4),
    "fsdp1": (["--method", "fsdp1:8", "--checkpointing", "full"], "FSDP", 8),
    "fsdp1-offloaded": (["--method", "fsdp1:8", "--offload", "parameters"], "FSDP", 8),
    "fsdp2": (["--method", "fsdp2:8", "--mixed-precision", "bf16"], "FSDP", 8),
    "hybrid": (["--method", "fsdp2:4,replicate:2", "--nodes", "2", "--link", "ib-400g"], "FSDP", 8),
    "zero2": (["--method", "zero2:8", "--clip", "1"], "DEEPSPEED", 8),
    "zero3": (["--method", "zero3:8", "--offload", "optimizer,parameters"], "DEEPSPEED", 8),
    "zero3-alone": (["--method", "zero3:1", "--offload", "optimizer"], "DEEPSPEED", 1),
}
OFFLOADED = {"zero2": ("none", "none"), "zero3": ("cpu", "cpu"), "zero3-alone": ("cpu", "none")}


@pytest.mark.parametrize("case", CASES)
def test_accelerate_reads_it(case, tmp_path):
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    flags, kind, processes = CASES[case]
    path = tmp_path / "accelerate.yaml"
    emitted = emit("accelerate", path, *flags)
    assert emitted["command"].startswith("accelerate launch --config_file ")
    config = config_args.load_config_from_file(str(path))
    assert config.distributed_type.value == kind
    assert config.num_processes == processes
    if kind == "FSDP":
        assert config.fsdp_config["fsdp_version"] == (1 if case.startswith("fsdp1") else 2)
        assert config.fsdp_config["fsdp_offload_params"] is (case == "fsdp1-offloaded")
        assert config.fsdp_config["fsdp_activation_checkpointing"] is (case == "fsdp1")
    if case == "hybrid":
        assert config.num_machines == 2
        assert config.parallelism_config["parallelism_config_dp_replicate_size"] == 2
        assert config.parallelism_config["parallelism_config_dp_shard_size"] == 4
    if kind == "DEEPSPEED":
        said = config.deepspeed_config
        assert said["zero_stage"] == (2 if case == "zero2" else 3)
        assert (said["offload_optimizer_device"], said["offload_param_device"]) == OFFLOADED[case]
        assert config.mixed_precision == "bf16"


def test_accelerate_launch_takes_it(tmp_path):
    """The launcher's own arguments and environment, without starting anything."""
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate.utils.launch import prepare_multi_gpu_env
    path = tmp_path / "accelerate.yaml"
    emit("accelerate", path, "--method", "fsdp2:2", "--mixed-precision", "bf16", "--checkpointing", "full")
    arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    arguments, _, _ = launch._validate_launch_command(arguments)
    environment = prepare_multi_gpu_env(arguments)
    assert environment["ACCELERATE_USE_FSDP"] == "true"
    assert environment["FSDP_VERSION"] == "2"
    assert environment["FSDP_ACTIVATION_CHECKPOINTING"] == "true"
    assert environment["FSDP_RESHARD_AFTER_FORWARD"] == "true"
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"


def test_accelerates_fsdp2_file_trains_on_two_processes(tmp_path):
    """A tiny model, on the CPU, as the launcher's environment has it: sharded, and learning."""
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate.utils.launch import prepare_multi_gpu_env
    path = tmp_path / "accelerate.yaml"
    emit("accelerate", path, "--method", "fsdp2:2")
    script = str(Path(__file__).with_name("accelerate_training.py"))
    arguments, _, _ = launch._validate_launch_command(
        launch.launch_command_parser().parse_args(["--config_file", str(path), script]))
    environment = {**os.environ, **prepare_multi_gpu_env(arguments), "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
                           str(arguments.num_processes), script],
                          env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert (seen["version"], seen["among"], seen["whole"]) == (2, [2], 0)
    assert seen["units"] > 2  # its layers, and the root
    assert seen["losses"][-1] < seen["losses"][0]


def test_accelerate_launch_takes_the_third_stage(tmp_path):
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate.utils.launch import prepare_deepspeed_cmd_env
    path = tmp_path / "accelerate.yaml"
    emit("accelerate", path, "--method", "zero3:2", "--offload", "optimizer,parameters", "--clip", "0.5")
    arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    arguments, _, _ = launch._validate_launch_command(arguments)
    arguments.deepspeed_fields_from_accelerate_config = ""  # which the launcher itself sets
    _, environment = prepare_deepspeed_cmd_env(arguments)
    said = {name.removeprefix("ACCELERATE_DEEPSPEED_"): value for name, value in environment.items()}
    assert said["ZERO_STAGE"] == "3"
    assert said["OFFLOAD_OPTIMIZER_DEVICE"] == said["OFFLOAD_PARAM_DEVICE"] == "cpu"
    assert said["ZERO3_INIT"] == "true"
    assert float(environment["ACCELERATE_GRADIENT_CLIPPING"]) == 0.5


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeed_reads_the_third_stage(tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    path = tmp_path / "ds.json"
    emit("deepspeed", path, "--method", "zero3:8", "--offload", "optimizer,parameters",
         "--stage3-max-live-parameters", "300000000", "--stage3-prefetch-bucket-size", "0")
    zero = DeepSpeedZeroConfig(**json.loads(path.read_text())["zero_optimization"])
    defaults = DeepSpeedZeroConfig(stage=3)
    assert zero.stage == 3
    assert zero.offload_optimizer.device == zero.offload_param.device == "cpu"
    assert zero.max_live_parameters == 300_000_000
    assert zero.prefetch_bucket_size == 0
    # What nobody gave is what DeepSpeed has.
    for name in ("reduce_bucket_size", "overlap_comm", "sub_group_size", "param_persistence_threshold",
                 "max_reuse_distance"):
        assert getattr(zero, name) == getattr(defaults, name), name


AUTO = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto"}


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_auto_is_what_the_trainer_fills_in(tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    sizes = {"model_type": "llama", "hidden_size": 1032, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 4, "vocab_size": 128, "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": AUTO, "bf16": {"enabled": "auto"},
                                                  "train_micro_batch_size_per_gpu": "auto"}))
    (tmp_path / "sft.yaml").write_text("output_dir: o\nbf16: true\ndeepspeed: ds.json\n")
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", str(tmp_path / "config.json"), "--device", "a100-sxm-80gb",
                           "--from", str(tmp_path / "sft.yaml"), "--gpus", "4", "--search", "false", "--json"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours = {setting["name"]: setting["value"] for setting in json.loads(done.stdout)["settings"]}
    config = HfTrainerDeepSpeedConfig({"zero_optimization": dict(AUTO)})

    class Model:
        class config:  # noqa: N801 (what transformers asks a model for)
            hidden_size = sizes["hidden_size"]

    arguments = TrainingArguments(output_dir=str(tmp_path / "o"), use_cpu=True)
    config.trainer_config_finalize(arguments, Model, 10)
    for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"):
        assert ours[name.replace("_", "-")] == str(config.get_value(f"zero_optimization.{name}")), name


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeed_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("WORLD_SIZE", "8")
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    path = tmp_path / "ds.json"
    emitted = emit("deepspeed", path, "--method", "zero2:8", "--grad-accum", "4", "--clip", "0.5", "--overlap-comm", "true")
    assert emitted["command"] == f"torchrun --nproc_per_node 8 train.py --deepspeed {path}"
    written = json.loads(path.read_text())
    assert written["train_batch_size"] == 2 * 4 * 8
    assert written["gradient_clipping"] == 0.5
    zero = DeepSpeedZeroConfig(**written["zero_optimization"])
    assert zero.stage == 2
    assert zero.overlap_comm is True
    assert zero.reduce_bucket_size == 500_000_000


def test_what_is_written_reads_back_the_same(tmp_path):
    """The answer from a file is the answer from the flags that wrote it."""
    path = tmp_path / "accelerate.yaml"
    flags = ["--method", "fsdp2:4", "--mixed-precision", "bf16", "--checkpointing", "full", "--accelerate", "true"]
    emit("accelerate", path, *flags)
    asked = [os.environ["HEADROOM_BINARY"], *QUESTION]
    by_flags = json.loads(subprocess.run([*asked, *flags], capture_output=True, text=True, check=False).stdout)
    by_file = json.loads(subprocess.run([*asked, "--from", str(path)], capture_output=True, text=True, check=False).stdout)
    assert by_file["memory"] == by_flags["memory"]
    assert by_file["time"] == by_flags["time"]


def test_the_third_stage_reads_back_the_same(tmp_path):
    asked = [os.environ["HEADROOM_BINARY"], *QUESTION]
    flags = ["--method", "zero3:4", "--offload", "optimizer", "--stage3-max-live-parameters", "30000000", "--clip", "1"]
    path = tmp_path / "ds.json"
    emit("deepspeed", path, *flags)
    by_flags = json.loads(subprocess.run([*asked, *flags], capture_output=True, text=True, check=False).stdout)
    by_file = json.loads(subprocess.run([*asked, "--from", str(path)], capture_output=True, text=True, check=False).stdout)
    assert by_flags["memory"]["host_bytes"]["taken"] > 0
    assert by_file["memory"] == by_flags["memory"]


SOURCES = {
    "accelerate": (["openai-community/gpt2"], "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"),
    "deepspeed": (["openai-community/gpt2"], '{"zero_optimization": {"stage": 2}, "train_batch_size": 8, '
                                             '"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}'),
    "megatron": ([], "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
                     "--max-position-embeddings 128 --vocab-size 1000\n"),
    "torchtitan": ([], "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b\n"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_was_read_is_not_written_over(kind, tmp_path):
    model, content = SOURCES[kind]
    source, link = tmp_path / "mine", tmp_path / "link"
    source.write_text(content)
    link.symlink_to(source)
    for place in (source, link, tmp_path / ".." / tmp_path.name / "mine"):
        done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", *model, "--device", "h100-sxm-80gb", "--search", "false",
                               "--from", str(source), "--emit", f"{kind}={place}"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "is what the setting was read from" in done.stderr
        assert source.read_text() == content


def test_several_files_are_written_or_none(tmp_path):
    places = [tmp_path / "a.yaml", tmp_path / "b.json"]
    words = [word for kind, place in zip(("accelerate", "deepspeed"), places) for word in ("--emit", f"{kind}={place}")]
    command = [os.environ["HEADROOM_BINARY"], *QUESTION, *words]
    done = subprocess.run([*command, "--method", "ddp:4"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "DeepSpeed's file is for its ZeRO" in done.stderr
    assert not any(place.exists() for place in places)
    done = subprocess.run([*command, "--method", "zero2:4"], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["emitted"]["file"] == str(places[0])
    assert [other["file"] for other in answer["emitted_besides"]] == [str(places[1])]
    assert all(place.exists() for place in places)
