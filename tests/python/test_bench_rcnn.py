"""The R-CNNs of `headroom bench nongemm`: as large as the published ones, and the same in both of their forms.

Held against what torchvision documents for fasterrcnn_resnet50_fpn and maskrcnn_resnet50_fpn (parameters, and GFLOPS,
which count a multiplication and its addition as one), against suppression and RoI align written box by box, and the
graph of ONNX against the module.
"""

import collections
import json
import math
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from headroom import nongemm_models, nongemm_rcnn  # noqa: E402  they need PyTorch

PUBLISHED_GFLOPS = 134.38  # of both: at random weights torchvision's own count finds nothing to draw masks of
PUBLISHED_SIDE = 800
SMALL = {"shorter_side": 160, "longer_side": 240, "proposals": 200, "candidates": 150, "detections": 20}


def made(**sizes):
    entry = {"module": {"kind": "rcnn", **sizes}, "inputs": {"images": [3, 90, 120]}}
    return nongemm_models.Recipe(torch, entry).make(dtype=torch.float32)


@pytest.mark.parametrize("has_masks, parameters", [(False, 41755286), (True, 44401393)])
def test_parameters_are_as_published(has_masks, parameters):
    entry = {"module": {"kind": "rcnn", "has_masks": has_masks}}
    assert nongemm_models.Recipe(torch, entry).parameters() == parameters


def giga_products(call, *given):
    """What PyTorch's own counter says, in billions of multiplications with their additions."""
    from torch.utils.flop_counter import FlopCounterMode
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = call(*given)
    return counter.get_total_flops() / 2e9, output


def test_products_are_as_published():
    """On sizes alone, without values: which is why it is counted part by part."""
    with torch.device("meta"):
        module = nongemm_rcnn.RegionCnn(has_masks=True)
        image = torch.empty(1, 3, PUBLISHED_SIDE, PUBLISHED_SIDE)
        regions, found = torch.empty(1000, 256, 7, 7), torch.empty(100, 256, 14, 14)
    backbone, stages = giga_products(module.backbone, image)
    pyramid, levels = giga_products(module.pyramid, stages)
    proposals = sum(giga_products(module.proposal_head, level)[0] for level in levels)
    boxes = giga_products(module.box_head, regions)[0]
    assert backbone + pyramid + proposals + boxes == pytest.approx(PUBLISHED_GFLOPS, abs=0.005)
    # What masks add to it, by hand: four convolutions, one up to twice the size, and one to the classes.
    masks = 100 * (4 * 14**2 * 9 * 256**2 + 28**2 * 256**2 + 28**2 * 256 * 91) / 1e9
    assert giga_products(module.mask_head, found)[0] == pytest.approx(masks)


def overlap(one, other):
    width, height = (min(one[2 + way], other[2 + way]) - max(one[way], other[way]) for way in (0, 1))
    shared = max(width, 0) * max(height, 0)
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(area) - shared)


def random_boxes(count, side, generator):
    corners = torch.rand(count, 2, generator=generator) * side * 0.7
    return torch.cat((corners, corners + 1 + torch.rand(count, 2, generator=generator) * side * 0.25), dim=1)


def test_suppression_is_the_greedy_one():
    generator = torch.Generator().manual_seed(1)
    boxes = torch.stack([random_boxes(60, 60.0, generator) for _ in range(2)])
    found = nongemm_rcnn.suppressed(boxes, 0.3)
    for image in range(2):
        stay = []
        for index, box in enumerate(boxes[image].tolist()):
            if all(overlap(box, boxes[image, other].tolist()) <= 0.3 for other in stay):
                stay.append(index)
        assert found[image].nonzero()[:, 0].tolist() == stay
        assert 0 < len(stay) < 60


def value_at(plane, y, x):
    """Between four cells; beyond the outermost ones nothing."""
    height, width = len(plane), len(plane[0])
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = min(int(y), height - 2), min(int(x), width - 2)
    down, right = y - top, x - left
    return ((plane[top][left] * (1 - right) + plane[top][left + 1] * right) * (1 - down)
            + (plane[top + 1][left] * (1 - right) + plane[top + 1][left + 1] * right) * down)


def test_regions_are_averages_of_samples():
    generator = torch.Generator().manual_seed(2)
    level = torch.rand(2, 3, 9, 12, generator=generator)
    boxes = torch.cat((random_boxes(5, 40.0, generator), torch.tensor([[47.5, 35.5, 47.9, 35.9], [0, 0, 48, 36]])))
    images = torch.tensor([0, 1, 1, 0, 1, 0, 1])
    bins = 3
    found = nongemm_rcnn.roi_align(level, boxes, images, 0.25, bins)
    for index, (left, top, right, bottom) in enumerate((boxes / 4).tolist()):
        width, height = max(right - left, 1), max(bottom - top, 1)
        for channel in range(3):
            plane = level[images[index], channel].tolist()
            for row, column in ((0, 0), (1, 2), (2, 2)):
                samples = [value_at(plane, top + height * (row + (i + 0.5) / 2) / bins,
                                    left + width * (column + (j + 0.5) / 2) / bins) for i in (0, 1) for j in (0, 1)]
                assert found[index, channel, row, column].item() == pytest.approx(sum(samples) / 4, abs=1e-5)


def test_as_many_boxes_go_on_as_stated():
    module = made(has_masks=True, **SMALL)
    with torch.inference_mode():
        output = module(torch.rand(2, 3, 90, 120, generator=torch.Generator().manual_seed(3)))
    assert output["boxes"].shape == (2, 20, 4) and output["masks"].shape == (2, 20, 90, 120)
    assert output["boxes"].min() >= 0 and output["boxes"][..., 2].max() <= 120.01
    assert output["labels"].min() >= 1 and output["labels"].max() <= 90
    assert sum(module.by_level) == 2 * SMALL["proposals"]
    assert len(set(map(tuple, output["boxes"][0].round().tolist()))) > 10  # random, but no heap of the same boxes


@pytest.fixture(scope="module", params=[False, True], ids=["faster", "mask"])
def both_forms(request, tmp_path_factory):
    """A small one with padding, as a module and as a graph that ONNX Runtime has run."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    module = made(has_masks=request.param, **SMALL)
    images = torch.rand(2, 3, 90, 120, generator=torch.Generator().manual_seed(3))
    graph = module.onnx_model(images)
    path = tmp_path_factory.mktemp("rcnn") / "model.onnx"
    onnx.save(graph, path)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return module, images, graph, dict(zip(names, session.run(None, {"images": images.numpy()})))


PRODUCTS = {"Conv": torch.nn.Conv2d, "Gemm": torch.nn.Linear, "ConvTranspose": torch.nn.ConvTranspose2d}


def shapes_of_graph(graph):
    import onnx
    inferred = onnx.shape_inference.infer_shapes(graph, data_prop=True)
    known = {value.name: [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
             for value in inferred.graph.value_info}
    return collections.Counter((node.op_type, tuple(known[node.output[0]])) for node in graph.graph.node
                               if node.op_type in PRODUCTS)


def shapes_of_module(module, images):
    shapes, kinds = collections.Counter(), {kind: name for name, kind in PRODUCTS.items()}

    def note(part, _, output):
        shapes.update([(kinds[type(part)], tuple(output.shape))])
    hooks = [part.register_forward_hook(note) for part in module.modules() if type(part) in kinds]
    with torch.inference_mode():
        output = module(images)
    for hook in hooks:
        hook.remove()
    return shapes, output


def test_both_forms_are_the_same(both_forms):
    module, images, graph, found = both_forms
    shapes, wanted = shapes_of_module(module, images)
    assert shapes_of_graph(graph) == shapes
    operators = collections.Counter(node.op_type for node in graph.graph.node)
    assert operators["NonMaxSuppression"] == 5 + 1  # of each level, and of classes
    assert operators["RoiAlign"] == 4 * (2 if "masks" in wanted else 1)
    assert set(found) == set(wanted)
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in wanted.items()}
    for image in range(2):
        pairs = same_detections(wanted, found, image)
        assert len(pairs) >= 0.9 * SMALL["detections"]  # scores that all but agree may change places
        for one, other in pairs if "masks" in wanted else ():
            assert abs(wanted["masks"][image, one].numpy() - found["masks"][image, other]).max() < 1e-2


def same_detections(wanted, found, image):
    """Which of one form's are which of the other's."""
    pairs = []
    for one in range(SMALL["detections"]):
        for other in range(SMALL["detections"]):
            if (wanted["labels"][image, one].item() == found["labels"][image, other]
                    and math.isclose(wanted["scores"][image, one], found["scores"][image, other], rel_tol=1e-3)
                    and abs(wanted["boxes"][image, one].numpy() - found["boxes"][image, other]).max() < 0.01):
                pairs.append((one, other))
                break
    return pairs


def test_the_table_states_what_the_modules_have():
    source = Path(os.environ.get("HEADROOM_SOURCE_DIR", Path(__file__).parents[2]))
    table = json.loads((source / "data" / "nongemm_models.json").read_text())
    own = [model for model in table["models"] if "module" in model]
    assert {model["name"] for model in own} >= {"faster-rcnn", "mask-rcnn"}
    for model in own:
        assert nongemm_models.Recipe(torch, model).parameters() == model["parameters"], model["name"]
