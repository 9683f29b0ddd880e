"""`fit --from` with a Trainer's arguments: what transformers' own parser makes of the same file."""

import json
import os
import subprocess

import pytest

ARGUMENTS = {
    "output_dir": "out",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_grad_norm": 0.5,
    "optim": "adafactor",
    "gradient_checkpointing": True,
    "use_cpu": True,  # so that no GPU is asked for here
}


def settings(path, *flags):
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", "openai-community/gpt2", "--device", "a100-sxm-80gb",
                           "--seq", "128", "--search", "false", "--json", "--from", str(path), *flags],
                          capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {one["name"]: one["value"] for one in json.loads(done.stdout)["settings"]}


def parsed(path):
    transformers = pytest.importorskip("transformers")
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    read = parser.parse_json_file if path.suffix == ".json" else parser.parse_yaml_file
    return read(str(path))[0]


def write(path, arguments):
    if path.suffix == ".json":
        path.write_text(json.dumps(arguments), encoding="utf-8")
        return
    lines = [f"{name}: {json.dumps(value)}" for name, value in arguments.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["arguments.json", "arguments.yaml"])
def test_a_file_says_what_the_trainer_takes_from_it(tmp_path, name):
    path = tmp_path / name
    write(path, ARGUMENTS)
    of_trainer = parsed(path)
    ours = settings(path)
    assert int(ours["batch"]) == of_trainer.per_device_train_batch_size == 2
    assert int(ours["grad-accum"]) == of_trainer.gradient_accumulation_steps == 4
    assert float(ours["clip"]) == of_trainer.max_grad_norm == 0.5
    assert of_trainer.optim == "adafactor" and ours["optimizer"] == "hf-adafactor"
    assert ours["checkpointing"] == "full"


def test_what_is_left_out_is_the_trainers_default(tmp_path):
    path = tmp_path / "arguments.json"
    write(path, {"output_dir": "out", "use_cpu": True})
    of_trainer = parsed(path)
    ours = settings(path)
    assert int(ours["batch"]) == of_trainer.per_device_train_batch_size
    assert int(ours["grad-accum"]) == of_trainer.gradient_accumulation_steps
    assert float(ours["clip"]) == of_trainer.max_grad_norm
    assert of_trainer.optim == "adamw_torch_fused" and ours["optimizer"] == "adamw-fused"
    assert ours["checkpointing"] == "none"


def test_a_script_says_the_same_as_its_file(tmp_path):
    arguments = {"output_dir": "out", "per_device_train_batch_size": 3, "optim": "sgd", "bf16": True}
    path = tmp_path / "arguments.json"
    write(path, arguments)
    script = tmp_path / "train.sh"
    script.write_text("BATCH=3\npython train.py --output_dir out --per_device_train_batch_size $BATCH \\\n"
                      "  --optim sgd --bf16\n", encoding="utf-8")
    assert settings(path) == settings(script)


def test_flags_come_before_the_file(tmp_path):
    path = tmp_path / "arguments.json"
    write(path, ARGUMENTS)
    assert settings(path, "--batch", "7")["batch"] == "7"
    assert settings(path, "--gpus", "4")["method"] == "full,ddp:4"


def test_the_model_may_be_in_the_file(tmp_path):
    path = tmp_path / "sft.yaml"
    write(path, {"model_name_or_path": "openai-community/gpt2", "output_dir": "out"})
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", "--device", "a100-sxm-80gb", "--search", "false",
                           "--from", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("yes: openai-community/gpt2 at batch 8"), done.stderr
    path.write_text("output_dir: out\n", encoding="utf-8")
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", "--from", str(path)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and "says no model" in done.stderr
