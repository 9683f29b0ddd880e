"""The diffusion transformer of `headroom bench nongemm`: as large as the published one, and each patch in its place."""

import pytest

torch = pytest.importorskip("torch")

from headroom import nongemm_dit, nongemm_models  # noqa: E402  they need PyTorch

# Of DiT-XL/2 at 256 x 256, arXiv 2212.09748: a multiplication with its addition is one.
PUBLISHED_PARAMETERS, PUBLISHED_GFLOPS = 675129632, 118.6


def test_it_is_as_large_as_published():
    from torch.utils.flop_counter import FlopCounterMode
    recipe = nongemm_models.Recipe(torch, {"module": {"kind": "dit"}})
    assert recipe.parameters() == PUBLISHED_PARAMETERS
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        module = nongemm_dit.DiffusionTransformer()
        output = module(torch.empty(1, 4, 32, 32), torch.empty(1), torch.zeros(1, dtype=torch.int64))
    assert output.shape == (1, 8, 32, 32)
    assert counter.get_total_flops() / 2e9 == pytest.approx(PUBLISHED_GFLOPS, abs=0.05)


def small():
    sizes = {"hidden": 48, "blocks": 2, "heads": 3, "side": 8, "classes": 10}
    entry = {"module": {"kind": "dit", **sizes}, "inputs": {"latents": [4, 8, 8], "levels": [], "labels": 10}}
    recipe = nongemm_models.Recipe(torch, entry)
    module = recipe.make(dtype=torch.float32)
    return module, recipe.inputs(module, 3, torch.float32, torch.device("cpu"))[1]


@torch.inference_mode()
def test_noise_level_and_class_are_heard():
    module, named = small()
    output = module(**named)
    assert output.shape == (3, 8, 8, 8) and output.isfinite().all()
    assert not torch.equal(output, module(**dict(named, levels=named["levels"] + 1)))
    assert not torch.equal(output, module(**dict(named, labels=(named["labels"] + 1) % 10)))


@torch.inference_mode()
def test_each_patch_is_where_it_was():
    """Closed gates let nothing through from one patch to another: what changes in one shows there alone."""
    module, named = small()
    for block in module.blocks:
        block.condition[1].weight.zero_()
    before = module(**named)
    named["latents"][:, :, 2:4, 6:8] += 1
    changed = (module(**named) != before).any(dim=1).any(dim=0)
    expected = torch.zeros(8, 8, dtype=torch.bool)
    expected[2:4, 6:8] = True
    assert torch.equal(changed, expected)
