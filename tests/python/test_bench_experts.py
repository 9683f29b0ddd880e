"""Experts as the graph of ONNX Runtime has them, beside transformers' own."""

import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from headroom import nongemm_experts, nongemm_models  # noqa: E402

TINY = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32,
        "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "num_local_experts": 4,
        "num_experts_per_tok": 2}


def made():
    return nongemm_models.Recipe(torch, {"name": "x", "config": TINY, "inputs": {"tokens": 8}}).make()


def theirs(experts, hidden, index, weights):
    """Their loop over the experts that were hit, not the grouped product that may stand in for it."""
    forward = type(experts).forward
    return getattr(forward, "__wrapped__", forward)(experts, hidden, index, weights)


def test_with_an_even_histogram_it_is_the_same():
    experts = made().model.layers[0].mlp.experts
    generator = torch.Generator().manual_seed(1)
    # Each of 4 experts is chosen by 6 of 12 tokens.
    index = torch.tensor([[0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2]] * 2)[torch.randperm(12, generator=generator)]
    hidden, weights = torch.randn(12, 32, generator=generator), torch.rand(12, 2, generator=generator)
    with torch.no_grad():
        wanted = theirs(experts, hidden, index, weights)
        found = nongemm_experts.EvenExperts(experts)(hidden, index, weights)
    assert wanted.abs().max() > 1e-4
    assert torch.allclose(found, wanted, atol=1e-6)


def test_tokens_that_do_not_divide_are_all_taken():
    assert nongemm_experts.even_parts(10, 4) == [3, 3, 2, 2]
    assert nongemm_experts.even_parts(2, 4) == [1, 1, 0, 0]


def test_no_weight_is_copied():
    module = made()
    before = {part.untyped_storage().data_ptr() for part in module.parameters()}
    assert nongemm_experts.make_even(module) == [nongemm_experts.STATED]
    assert {part.untyped_storage().data_ptr() for part in module.parameters()} == before
    assert sum(part.numel() for part in module.parameters()) == nongemm_models.Recipe(
        torch, {"name": "x", "config": TINY, "inputs": {}}).parameters()
    assert nongemm_experts.make_even(torch.nn.Linear(2, 2)) == []


SIZES = {"num_local_experts": 4, "num_experts": 4, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 48,
         "expert_dim": 48, "hidden_act": "silu", "swiglu_limit": 7.0, "swiglu_alpha": 1.7}


def experts_of(kind, name):
    file = pytest.importorskip(f"transformers.models.{kind}.modeling_{kind}")
    return torch.nn.ModuleDict({"experts": getattr(file, name)(types.SimpleNamespace(**SIZES))})


@pytest.mark.parametrize("kind, name", [("mixtral", "MixtralExperts"), ("qwen3_moe", "Qwen3MoeExperts")])
def test_mixtrals_kind_is_made_even(kind, name):
    module = experts_of(kind, name)
    assert nongemm_experts.make_even(module) == [nongemm_experts.STATED]
    assert isinstance(module["experts"], nongemm_experts.EvenExperts)


@pytest.mark.parametrize("kind, name", [
    ("llama4", "Llama4TextExperts"),        # (expert, in, out), and tokens that are sorted already
    ("deepseek_v4", "DeepseekV4Experts"),   # a clamp
    ("step3p7", "Step3p7Experts"),          # a clamp within its forward
    ("gpt_oss", "GptOssExperts")])          # biases, gate and up interleaved
def test_other_kinds_stay(kind, name):
    module = experts_of(kind, name)
    before = module["experts"]
    assert nongemm_experts.make_even(module) == []
    assert module["experts"] is before


def test_llama_4_runs_as_before():
    """Its experts in its own model, whose result would not be its own, or which would fail."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Llama4TextConfig(hidden_size=32, intermediate_size=48, intermediate_size_mlp=48, num_hidden_layers=2,
                                           num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=64,
                                           num_local_experts=4, num_experts_per_tok=1, pad_token_id=0)
    torch.manual_seed(1)
    module, words = transformers.Llama4ForCausalLM(config).eval(), torch.arange(8).unsqueeze(0)
    with torch.no_grad():
        before = module(words).logits
        assert nongemm_experts.make_even(module) == []
        assert torch.equal(module(words).logits, before)
