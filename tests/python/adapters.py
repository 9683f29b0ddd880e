"""Adapters of a case, as peft is asked for them; for the logs of real steps."""


def adapters_of(case, task=None):
    """LoRA of a rank, DoRA, or IA3's vectors; with IA3 a target named down_proj has its input scaled."""
    from peft import IA3Config, LoraConfig

    targets = case["lora_targets"]
    if case.get("ia3"):
        return IA3Config(target_modules=targets, task_type=task,
                         feedforward_modules=[name for name in targets if name == "down_proj"])
    return LoraConfig(r=case["lora_rank"], target_modules=targets, task_type=task, use_dora=case.get("dora", False))
