"""--measure: what the run was, in the columns that `headroom fit --against` reads.

Only what can be seen is written down, and what cannot stays empty for its owner to fill in
(docs/formats/measurements.md). At the first optimizer's step the model is looked for among the
living objects; for the next two it is watched what goes into it. After that nothing is watched.
Cost: one walk over the living objects, and a hook on one module for two steps.
"""

import gc
import hashlib
import json
import os
import sys

STEPS_WATCHED = 2


def _version(name):
    module = sys.modules.get(name)
    version = getattr(module, "__version__", None)
    return f"{name} {str(version).split('+')[0]}" if version else ""


def dtype_of(parameters):
    """In which dtype most of the numbers are kept."""
    counts = {}
    for parameter in parameters:
        name = str(parameter.dtype).replace("torch.", "")
        counts[name] = counts.get(name, 0) + parameter.numel()
    return max(counts, key=counts.get) if counts else ""


def optimizer_words(optimizer):
    """"AdamW fused", "AdamW 8bit", "SGD"."""
    inner = getattr(optimizer, "optimizer", optimizer)  # as accelerate wraps it
    name = type(inner).__name__
    if name.endswith("8bit"):
        return name[:-4] + " 8bit"
    group = inner.param_groups[0] if inner.param_groups else {}
    return name + (" fused" if group.get("fused") else "")


def method_words(model, trainable):
    """"full fine-tune", or what the adapters are."""
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, dict) or not configs:
        total = sum(p.numel() for p in model.parameters())
        return "full fine-tune" if trainable == total else f"partial trainable={trainable}"
    adapter = next(iter(configs.values()))
    kind = str(getattr(adapter, "peft_type", "")).rsplit(".", 1)[-1]
    kind = "DoRA" if getattr(adapter, "use_dora", False) else {"LORA": "LoRA"}.get(kind, kind)
    targets = getattr(adapter, "target_modules", None) or []
    targets = sorted(targets) if not isinstance(targets, str) else targets
    rank = getattr(adapter, "r", None)
    return f"{kind} r={rank} targets={targets} trainable={trainable}"


def _recomputes(model):
    """By its newer name in transformers, or its older one, which warns where the newer is there."""
    for name in ("is_activation_checkpointing", "is_gradient_checkpointing"):
        if hasattr(model, name):
            return bool(getattr(model, name))
    return False


class Setting:
    def __init__(self, torch, measured_file):
        self._torch = torch
        self._file = measured_file
        self._steps = 0
        self._columns = {}
        self._handle = None
        self._batches, self._lengths, self._forwards = [], [], 0

    def look(self, optimizer):
        """After every optimizer's step; what goes wrong leaves columns empty, never the run."""
        self._steps += 1
        if self._steps > STEPS_WATCHED + 1:
            return
        try:
            if self._steps == 1:
                self._look_first(optimizer)
            elif self._steps == STEPS_WATCHED + 1:
                self._look_last()
        except Exception as error:
            self._columns["notes"] = f"setting not seen: {type(error).__name__}: {error}"[:200]
            self._stop()

    def columns(self):
        self._stop()
        columns = dict(self._columns)
        known = all(columns.get(name) for name in ("model", "micro_batch", "seq_len", "optimizer"))
        columns["quality"] = "A" if known else "B"
        return columns

    def _stop(self):
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _look_first(self, optimizer):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._columns.update(
            optimizer=optimizer_words(optimizer), weights_dtype=dtype_of(parameters),
            notes=" ".join(filter(None, map(_version, ("torch", "transformers", "peft",
                                                       "accelerate")))))
        model = self._model_with(parameters[0]) if parameters else None
        if model is not None:
            self._look_at_model(model, sum(p.numel() for p in parameters))
            self._handle = model.register_forward_pre_hook(self._forward, with_kwargs=True)

    def _model_with(self, parameter):
        """The outermost module with a configuration that holds this parameter; no configuration,
        no model: fit could not ask for it."""
        best, most = None, -1
        for candidate in gc.get_objects():
            # By type(): isinstance would ask proxies, and some of those warn or import.
            if not issubclass(type(candidate), self._torch.nn.Module):
                continue
            if not hasattr(candidate, "config"):
                continue
            modules = sum(1 for _ in candidate.modules())
            if modules > most and any(p is parameter for p in candidate.parameters()):
                best, most = candidate, modules
        return best

    def _look_at_model(self, model, trainable):
        config = model.config
        everything = list(model.parameters())
        self._columns.update(
            model=self._keep_config(config), n_params=sum(p.numel() for p in everything),
            method=method_words(model, trainable), weights_dtype=dtype_of(everything),
            act_ckpt="full" if _recomputes(model) else "none",
            attention=getattr(config, "_attn_implementation", "") or "")
        trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", ())
        is_trained_by_it = any(issubclass(type(thing), trainer) for thing in gc.get_objects())
        self._columns["framework"] = "HF Trainer" if is_trained_by_it else "plain loop"

    def _keep_config(self, config):
        """Beside the measured file, as fit reads it; its path from there."""
        content = json.dumps(config.to_dict(), indent=1, sort_keys=True, default=str) + "\n"
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        name = f"configs/{getattr(config, 'model_type', 'model')}-{digest}.json"
        path = os.path.join(os.path.dirname(self._file), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return name

    def _forward(self, module, arguments, named):
        try:
            self._see(module, arguments, named)
        except Exception:  # the run is worth more than a column
            self._batches = []

    def _see(self, module, arguments, named):
        if not (module.training and self._torch.is_grad_enabled()):
            return
        tokens = named.get("input_ids", named.get("inputs_embeds"))
        if tokens is None and arguments:
            tokens = arguments[0]
        shape = getattr(tokens, "shape", ())
        if len(shape) >= 2:
            self._forwards += 1
            self._batches.append(int(shape[0]))
            self._lengths.append(int(shape[1]))
        if self._torch.is_autocast_enabled():
            kind = self._torch.get_autocast_gpu_dtype()
            self._columns["mixed_precision"] = ("bf16" if kind == self._torch.bfloat16
                                                else "fp16") + " autocast"
        if "labels" in named:
            self._columns["loss_impl"] = "HF CE"

    def _look_last(self):
        self._stop()
        self._columns.setdefault("mixed_precision", "none (pure)")
        if not self._batches:
            return
        longest = max(self._lengths)
        self._columns.update(
            micro_batch=max(self._batches),
            seq_len=longest if min(self._lengths) == longest else f"<={longest}",
            grad_accum=max(1, round(self._forwards / STEPS_WATCHED)))
