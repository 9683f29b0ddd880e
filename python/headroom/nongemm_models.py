"""The models of `headroom bench nongemm`, made from their configurations with random weights.

Nothing is loaded: what a model takes does not depend on its weights, but where values choose the work
(routing to experts, suppression of boxes), which the measurement then says. Weights are normal with a
deviation of 0.02, those of embeddings with 1, or what is common to all tokens would drown them and
send them to the same experts, those of convolutions with one by their fan-in, since frozen
normalization lets grow what grows; gains are one, biases zero.
"""

import contextlib
import copy
import importlib
import sys

from headroom import trace_module

# Modules of our own, where transformers has none: a file of this package and its class.
MODULES = {"rcnn": ("nongemm_rcnn", "RegionCnn"), "dit": ("nongemm_dit", "DiffusionTransformer")}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}  # our word, PyTorch's
WEIGHT_DEVIATION = 0.02
POOL_VALUES = (1 << 22) - 3  # odd, so that no two rows of a weight are alike


class Refused(Exception):
    """This setting cannot be measured here; the message says why."""


class Recipe:
    """How to make one model: with all its layers, or with fewer."""

    def __init__(self, torch, entry):
        self.torch, self.entry, self.layers = torch, entry, None
        self.is_config, self.is_own = "config" in entry, "module" in entry
        if self.is_config:
            self.config_class, self.model_class = self._classes()
            self.layers = self._layers()

    def _classes(self):
        try:
            import transformers
        except ImportError as error:
            raise Refused(f"needs transformers (pip install transformers): {error}") from error
        config = self.entry["config"]
        kind = config.get("model_type")
        if kind not in transformers.CONFIG_MAPPING:
            raise Refused(f"transformers {transformers.__version__} has no model_type {kind!r}")
        names = [self.entry.get("class")] + list(config.get("architectures") or ())
        for name in names:
            found = getattr(transformers, name, None) if isinstance(name, str) else None
            if isinstance(found, type):
                return transformers.CONFIG_MAPPING[kind], found
        return transformers.CONFIG_MAPPING[kind], transformers.AutoModelForCausalLM

    def config(self, layers=None):
        # A copy of all of it: transformers 5.17 takes members out of what it is given.
        members = copy.deepcopy({key: value for key, value in self.entry["config"].items() if key != "model_type"})
        config = self.config_class(**members)
        if layers is not None:
            config.num_hidden_layers = layers
            if getattr(config, "layer_types", None):
                config.layer_types = list(config.layer_types)[:layers]
        return config

    def _layers(self):
        """Layers of the whole, where it is one stack of them; None elsewhere."""
        config = self.config()
        layers = getattr(config, "num_hidden_layers", None)
        has_stacks = any(getattr(config, name, None) is not None
                         for name in ("backbone_config", "depths", "encoder_layers"))
        return layers if isinstance(layers, int) and not has_stacks else None

    def few_layers(self):
        """Two numbers of layers of which the whole can be composed."""
        if not self.is_config or not self.layers:
            raise Refused("it is no single stack of layers, so that a part says nothing of the whole")
        config = self.config()
        if getattr(config, "first_k_dense_replace", 0) or getattr(config, "mlp_only_layers", None):
            raise Refused("its first layers are unlike the others, so that a part says nothing of the whole")
        kinds = list(getattr(config, "layer_types", None) or ())
        for period in range(1, len(kinds) or 2):
            if all(kind == kinds[index % period] for index, kind in enumerate(kinds)):
                break
        if self.layers % period or 2 * period >= self.layers:
            raise Refused("its layers do not repeat, so that a part says nothing of the whole")
        return period, 2 * period

    def _construct(self, layers):
        if "function" in self.entry:
            made = trace_module.load_builder(self.entry["function"])()
            if not isinstance(made, tuple) or len(made) < 2:
                raise Refused(f"{self.entry['function']} has to return (module, inputs)")
            self.made_inputs = made[1]
            return made[0]
        if self.is_own:
            members = dict(self.entry["module"])
            file, name = MODULES[members.pop("kind")]
            return getattr(importlib.import_module(f"headroom.{file}"), name)(**members)
        try:
            with without_its_loss(self.model_class):
                if self.model_class.__name__.startswith("AutoModel"):
                    return self.model_class.from_config(self.config(layers))
                return self.model_class(self.config(layers))
        except ImportError as error:
            raise Refused("not available: " + " ".join(str(error).split()).split(". ")[0]) from error

    def parameters(self, layers=None):
        """Of the whole, or of so many layers; None where it is not known before it is made."""
        if not self.is_config and not self.is_own:
            return None
        with self.torch.device("meta"), self._without_initialisation():
            module = self._construct(layers)
            tie(module)
        return sum(parameter.numel() for parameter in module.parameters())

    def make(self, layers=None, dtype=None, device="cpu"):
        """On that device from the start: a GPU fills its memory ten times as fast as a host does, and nothing is copied."""
        if not self.is_config and not self.is_own:  # a module of the user's stays as it was made
            return self._construct(layers).to(device).eval()
        with self._without_initialisation(), default_dtype(self.torch, dtype):
            with self.torch.device("meta" if self.is_own else device):
                module = self._construct(layers)
        if self.is_own:
            module = module.to_empty(device=device)
        tie(module)
        fill(self.torch, module)
        importlib.import_module("headroom.nongemm_masks").mend(module)
        return module.eval()

    def _without_initialisation(self):
        if self.is_own:
            return contextlib.nullcontext()
        from transformers.initialization import no_init_weights
        return no_init_weights()

    def inputs(self, module, batch, dtype, device):
        """What forward() takes, by name or by place."""
        torch, given = self.torch, self.entry.get("inputs", {})
        generator = torch.Generator().manual_seed(1)
        if "function" in self.entry:
            return self._own_inputs(batch, device)
        named = {}
        for name, value in given.items():
            if name in ("tokens", "decoder_tokens"):
                words = torch.randint(vocabulary_of(module), (batch, value), generator=generator)
                named["input_ids" if name == "tokens" else "decoder_input_ids"] = words.to(device)
            elif name == "labels":  # of so many classes
                named[name] = torch.randint(value, (batch,), generator=generator).to(device)
            elif name == "pixel_mask":
                named[name] = torch.ones(batch, *value, dtype=torch.int64, device=device)
            else:
                named[name] = torch.randn(batch, *value, generator=generator).to(device, dtype)
        return [], named

    def _own_inputs(self, batch, device):
        from torch.utils import _pytree
        if batch != 1:
            raise Refused("the function says what the module is given: measure it with batch 1")
        made = _pytree.tree_map_only(self.torch.Tensor, lambda tensor: tensor.to(device), self.made_inputs)
        if isinstance(made, dict):
            return [], made
        return list(made) if isinstance(made, (tuple, list)) else [made], {}


@contextlib.contextmanager
def without_its_loss(model_class):
    """MaskFormer makes its loss with itself, which asks for scipy: no forward pass without labels uses either."""
    file = sys.modules[model_class.__module__]
    asked = getattr(file, "requires_backends", None) if hasattr(file, "MaskFormerLoss") else None
    if asked is None:
        yield
        return
    file.requires_backends = lambda part, backends: None if list(backends) == ["scipy"] else asked(part, backends)
    try:
        yield
    finally:
        file.requires_backends = asked


def tie(module):
    if hasattr(module, "tie_weights"):
        module.tie_weights()


@contextlib.contextmanager
def default_dtype(torch, dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def vocabulary_of(module):
    config = module.config
    words = getattr(config, "vocab_size", None) or config.get_text_config().vocab_size
    return int(words)


def fill(torch, module):
    """Random weights, at the speed of memory: slices of one pool of random numbers, each beginning
    where the one before ended, so that no two weights are alike."""
    for name, buffer in module.named_buffers():  # of frozen normalization, which copied what was never set
        if name.endswith((".running_mean", ".bias")):
            buffer.fill_(0)
        elif name.endswith((".running_var", ".weight")):
            buffer.fill_(1)
    pools, at = {}, 0
    deviations = {}
    for part in module.modules():
        if hasattr(part, "weight_deviation"):  # of our own modules, where it matters
            deviations[part.weight] = part.weight_deviation
        elif isinstance(part, torch.nn.Embedding):
            deviations[part.weight] = 1.0
        elif isinstance(part, torch.nn.modules.conv._ConvNd):
            deviations[part.weight] = part.weight[0].numel() ** -0.5
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            if parameter.dtype not in pools:
                values = torch.randn(POOL_VALUES, generator=torch.Generator().manual_seed(1))
                pools[parameter.dtype] = (values * WEIGHT_DEVIATION).to(parameter.dtype).to(parameter.device)
            pool, flat, done = pools[parameter.dtype], parameter.view(-1), 0
            while done < flat.numel():
                part = flat[done:done + POOL_VALUES - at]
                part.copy_(pool[at:at + part.numel()])
                done, at = done + part.numel(), (at + part.numel()) % POOL_VALUES
            if parameter in deviations:
                flat.mul_(deviations[parameter] / WEIGHT_DEVIATION)
