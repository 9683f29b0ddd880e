"""Experts as the graph of ONNX Runtime has them, beside transformers' own."""

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
