"""Faster and Mask R-CNN as a graph of ONNX, with the weights of a module of nongemm_rcnn.py.

Written through the onnx package, since torch.onnx's exporter cannot follow suppression, whose rounds depend on values.
It follows the module part by part and has the same shapes; what differs is in the engine's favour: RoiAlign and
NonMaxSuppression are operators of ONNX, and anchors, factors of frozen normalization and pixel places are constants.
Shapes are those of one setting. How many proposals a level of the pyramid gets is not known before it runs: NonZero.
"""

import math

import numpy
from onnx import TensorProto, helper, numpy_helper

from headroom import nongemm_rcnn as rcnn

OPSET, IR_VERSION = 18, 9


class Builder:
    """Nodes and constants, each named when it is made."""

    def __init__(self):
        self.nodes, self.initializers, self.known = [], [], {}

    def __getattr__(self, kind):
        """graph.Conv(x, w, strides=[2, 2]) adds a node; its outputs' names, or the one."""
        if kind.startswith("_"):
            raise AttributeError(kind)

        def add(*inputs, outputs=1, **attributes):
            name = f"{kind}_{len(self.nodes)}"
            names = [f"{name}:{index}" for index in range(outputs)]
            inputs = [value if isinstance(value, str) else self.constant(value) for value in inputs]
            self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
            return names[0] if outputs == 1 else names
        return add

    def constant(self, value):
        """Of an array, or of numbers: whole ones are int64, others fp32."""
        array = numpy.asarray(value)
        if not isinstance(value, numpy.ndarray):
            array = array.astype(numpy.int64 if array.dtype.kind == "i" else numpy.float32)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.known:
            self.known[key] = f"constant_{len(self.initializers)}"
            self.initializers.append(numpy_helper.from_array(array, self.known[key]))
        return self.known[key]

    def weight(self, name, value):
        self.initializers.append(numpy_helper.from_array(value.detach().float().cpu().numpy(), name))
        return name

    def reshape(self, x, *shape):
        return self.Reshape(x, list(shape))

    def part(self, x, start, end, axis=-1):
        return self.Slice(x, [start], [end], [axis])


class Writer:
    """One module, for images of one shape."""

    def __init__(self, module, shape):
        self.graph, self.module, self.sizes = Builder(), module, module.sizes
        self.images, _, self.own_height, self.own_width = shape
        self.height, self.width = self.sizes.scaled(self.own_height, self.own_width)
        self.names = {part: name for name, part in module.named_modules()}
        cells = [math.prod(self.cells(level)) for level in range(len(rcnn.STRIDES))]
        sizes = self.sizes
        self.of_level = [min(sizes.proposals, count * len(rcnn.ASPECTS)) for count in cells]
        self.proposal_count = min(sizes.proposals, sum(self.of_level))
        self.candidate_count = min(sizes.candidates, self.proposal_count * (sizes.classes - 1))
        self.detection_count = min(sizes.detections, self.candidate_count)

    # ---- modules with weights

    def conv(self, x, conv, kind="Conv"):
        name, graph = self.names[conv], self.graph
        weights = [graph.weight(f"{name}.{one}", value) for one, value in conv.named_parameters()]
        sides = {"kernel_shape": list(conv.kernel_size), "strides": list(conv.stride), "pads": list(conv.padding) * 2}
        return getattr(graph, kind)(x, *weights, **sides)

    def normed(self, x, layer):
        factor, shift = (value.float().cpu().numpy() for value in layer.norm.factor_and_shift())
        return self.graph.Add(self.graph.Mul(self.conv(x, layer.conv), factor), shift)

    def linear(self, x, linear):
        name = self.names[linear]
        weights = [self.graph.weight(f"{name}.{one}", value) for one, value in linear.named_parameters()]
        return self.graph.Gemm(x, *weights, transB=1)

    # ---- backbone

    def backbone(self, x):
        graph, backbone = self.graph, self.module.backbone
        x = graph.Relu(self.normed(x, backbone.stem))
        x = graph.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        outputs = []
        for stage in backbone.stages:
            for block in stage:
                y = graph.Relu(self.normed(graph.Relu(self.normed(x, block.narrow)), block.middle))
                y = self.normed(y, block.widen)
                x = graph.Relu(graph.Add(y, x if block.shortcut is None else self.normed(x, block.shortcut)))
            outputs.append(x)
        return outputs

    def pyramid(self, stages):
        graph, pyramid = self.graph, self.module.pyramid
        sums = [self.conv(stage, inner) for stage, inner in zip(stages, pyramid.inner)]
        for fine in reversed(range(len(sums) - 1)):
            size = [self.images, pyramid.inner[0].out_channels, *self.cells(fine)]
            coarse = graph.Resize(sums[fine + 1], "", "", size, mode="nearest", nearest_mode="floor",
                                  coordinate_transformation_mode="asymmetric")
            sums[fine] = graph.Add(sums[fine], coarse)
        levels = [self.conv(one, outer) for one, outer in zip(sums, pyramid.outer)]
        return levels + [graph.MaxPool(levels[-1], kernel_shape=[1, 1], strides=[2, 2])]

    def cells(self, level):
        """Height and width of a level: each stage halves the one before, rounded up."""
        last = rcnn.ROI_LEVELS - 1
        sides = [math.ceil(side / rcnn.STRIDES[last]) << last for side in (self.height, self.width)]
        return [math.ceil(side / (1 << level)) for side in sides]

    # ---- boxes

    def corrected(self, boxes, corrections, weights=(1.0, 1.0, 1.0, 1.0)):
        graph = self.graph
        starts, moves, growths = graph.part(boxes, 0, 2), graph.part(corrections, 0, 2), graph.part(corrections, 2, 4)
        sides = graph.Sub(graph.part(boxes, 2, 4), starts)
        centres = graph.Add(starts, graph.Div(sides, 2.0))
        moved = graph.Add(centres, graph.Mul(graph.Div(moves, weights[0]), sides))
        growths = graph.Exp(graph.Min(graph.Div(growths, weights[2]), rcnn.MOST_GROWTH))
        halves = graph.Div(graph.Mul(sides, growths), 2.0)
        return graph.Concat(graph.Sub(moved, halves), graph.Add(moved, halves), axis=-1)

    def clipped(self, boxes):
        size = [float(self.width), float(self.height)] * 2
        return self.graph.Min(self.graph.Max(boxes, 0.0), size)

    def is_large(self, boxes):
        graph = self.graph
        sides = graph.Sub(graph.part(boxes, 2, 4), graph.part(boxes, 0, 2))
        least = graph.ReduceMin(sides, [-1], keepdims=0)
        return graph.GreaterOrEqual(least, rcnn.LEAST_SIDE)

    def of(self, values, index):
        return self.graph.GatherND(values, self.graph.Unsqueeze(index, [-1]), batch_dims=1)

    def top(self, scores, count):
        return self.graph.TopK(scores, [count], outputs=2)

    def best(self, scores, kept, count):
        graph = self.graph
        lowered = graph.Mul(graph.Cast(graph.Not(kept), to=TensorProto.DOUBLE), numpy.array(rcnn.SUPPRESSED))
        return self.top(graph.Sub(graph.Cast(scores, to=TensorProto.DOUBLE), lowered), count)[1]

    def stays(self, boxes, count, overlap):
        """Which of boxes [images, count, 4] suppression leaves. They are in order, best first: of equal scores the
        operator may take either, so that it is given their places instead."""
        graph = self.graph
        ranks = numpy.broadcast_to(numpy.arange(count, 0, -1, dtype=numpy.float32), (self.images, 1, count)).copy()
        found = graph.NonMaxSuppression(boxes, ranks, numpy.array([count]), numpy.array([overlap], numpy.float32))
        places = graph.Gather(found, numpy.array([0, 2]), axis=1)  # image and box, without the class
        true = graph.Expand(numpy.array(True), graph.part(graph.Shape(found), 0, 1, axis=0))
        return graph.ScatterND(numpy.zeros((self.images, count), bool), places, true)

    # ---- stages

    def scaled(self, images):
        graph = self.graph
        mean, deviation = (numpy.array(one, numpy.float32).reshape(3, 1, 1) for one in (rcnn.MEAN, rcnn.DEVIATION))
        images = graph.Div(graph.Sub(images, mean), deviation)
        images = graph.Resize(images, "", "", [self.images, 3, self.height, self.width], mode="linear",
                              coordinate_transformation_mode="pytorch_half_pixel")
        below, right = (-side % rcnn.STRIDES[3] for side in (self.height, self.width))
        return graph.Pad(images, [0, 0, 0, 0, 0, 0, below, right]) if below or right else images

    def proposals(self, levels):
        graph, head = self.graph, self.module.proposal_head
        weights = self.shared(head.conv), self.shared(head.score), self.shared(head.box)
        parts = []
        for index, level in enumerate(levels):
            height, width = self.cells(index)
            x = graph.Relu(graph.Conv(level, *weights[0], pads=[1, 1, 1, 1]))
            score = graph.reshape(graph.Transpose(graph.Conv(x, *weights[1]), perm=[0, 2, 3, 1]), self.images, -1)
            box = graph.reshape(graph.Transpose(graph.Conv(x, *weights[2]), perm=[0, 2, 3, 1]), self.images, -1, 4)
            anchors = rcnn.anchors_of(index, height, width, next(self.module.parameters()).cpu()).numpy()
            count = self.of_level[index]
            score, chosen = self.top(score, count)
            some = self.clipped(self.of(self.corrected(anchors, box), chosen))
            parts.append((some, score, graph.And(self.stays(some, count, rcnn.RPN_OVERLAP), self.is_large(some))))
        boxes, scores, kept = (graph.Concat(*values, axis=1) for values in zip(*parts))
        return self.of(boxes, self.best(scores, kept, self.proposal_count))

    def shared(self, conv):
        """The weights of a layer that runs on each level."""
        return [self.graph.weight(f"{self.names[conv]}.{one}", value) for one, value in conv.named_parameters()]

    def regions(self, levels, boxes, count, bins):
        graph, total = self.graph, self.images * count
        boxes = graph.reshape(boxes, total, 4)
        images = numpy.repeat(numpy.arange(self.images), count)
        sides = graph.Sub(graph.part(boxes, 2, 4), graph.part(boxes, 0, 2))
        area = graph.Mul(graph.part(sides, 0, 1), graph.part(sides, 1, 2))
        octaves = graph.Log(graph.Add(graph.Div(graph.Sqrt(area), float(rcnn.USUAL_SIDE)), 1e-6))
        octaves = graph.Floor(graph.Div(octaves, math.log(2)))
        chosen = graph.Clip(graph.Add(octaves, float(rcnn.USUAL_LEVEL)), 0.0, float(rcnn.ROI_LEVELS - 1))
        chosen = graph.reshape(chosen, total)
        channels = self.module.pyramid.inner[0].out_channels
        output = graph.Expand(0.0, [total, channels, bins, bins])
        for index in range(rcnn.ROI_LEVELS):
            places = graph.Transpose(graph.NonZero(graph.Equal(chosen, float(index))), perm=[1, 0])
            its_boxes = graph.GatherND(boxes, places)
            its_images = graph.GatherND(images, places)
            aligned = graph.RoiAlign(levels[index], its_boxes, its_images, output_height=bins, output_width=bins,
                                     sampling_ratio=rcnn.SAMPLES, spatial_scale=1 / rcnn.STRIDES[index],
                                     coordinate_transformation_mode="output_half_pixel")
            output = graph.ScatterND(output, places, aligned)
        return output

    def detections(self, levels, proposals):
        graph, head, classes = self.graph, self.module.box_head, self.sizes.classes
        count = self.images * self.proposal_count
        x = graph.reshape(self.regions(levels, proposals, self.proposal_count, rcnn.BOX_BINS), count, -1)
        x = graph.Relu(self.linear(graph.Relu(self.linear(x, head.first)), head.second))
        scores, corrections = self.linear(x, head.score), self.linear(x, head.box)
        whole = self.corrected(graph.reshape(proposals, count, 1, 4), graph.reshape(corrections, count, classes, 4),
                               rcnn.CLASS_WEIGHTS)
        whole = graph.reshape(graph.part(self.clipped(whole), 1, classes, axis=1), self.images, -1, 4)
        scores = graph.part(graph.Softmax(scores, axis=-1), 1, classes)
        scores, chosen = self.top(graph.reshape(scores, self.images, -1), self.candidate_count)
        boxes, labels = self.of(whole, chosen), graph.Add(graph.Mod(chosen, classes - 1), 1)
        far = graph.Mul(graph.Cast(labels, to=TensorProto.FLOAT), float(max(self.height, self.width) + 1))
        apart = graph.Add(boxes, graph.Unsqueeze(far, [-1]))
        kept = graph.And(self.stays(apart, self.candidate_count, rcnn.CLASS_OVERLAP), self.is_large(boxes))
        chosen = self.best(scores, kept, self.detection_count)
        return self.of(boxes, chosen), self.of(scores, chosen), self.of(labels, chosen)

    def masks(self, levels, boxes, labels, own_boxes):
        graph, head = self.graph, self.module.mask_head
        count = self.images * self.detection_count
        x = self.regions(levels, boxes, self.detection_count, rcnn.MASK_BINS)
        for conv in head.convs:
            x = graph.Relu(self.conv(x, conv))
        x = self.conv(graph.Relu(self.conv(x, head.up, "ConvTranspose")), head.mask)
        x = graph.GatherND(x, graph.reshape(labels, count, 1), batch_dims=1)
        x = graph.Unsqueeze(graph.Sigmoid(x), [1])
        own_boxes = graph.reshape(own_boxes, count, 4)
        starts = graph.part(own_boxes, 0, 2)
        sides = graph.Max(graph.Sub(graph.part(own_boxes, 2, 4), starts), 1.0)
        shape, ways = [count, self.own_height, self.own_width], []
        for axis, length, across in ((0, self.own_width, 1), (1, self.own_height, 2)):
            pixels = numpy.arange(length, dtype=numpy.float32) + 0.5
            place = graph.Sub(pixels, graph.part(starts, axis, axis + 1))
            place = graph.Div(place, graph.part(sides, axis, axis + 1))
            place = graph.Unsqueeze(graph.Sub(graph.Mul(place, 2.0), 1.0), [across])
            ways.append(graph.Unsqueeze(graph.Expand(place, shape), [-1]))
        laid = graph.GridSample(x, graph.Concat(*ways, axis=-1), mode="bilinear", align_corners=0)
        return graph.reshape(laid, self.images, -1, self.own_height, self.own_width)

    def write(self):
        graph = self.graph
        levels = self.pyramid(self.backbone(self.scaled("images")))
        boxes, scores, labels = self.detections(levels, self.proposals(levels))
        back = [self.own_width / self.width, self.own_height / self.height] * 2
        scaled_boxes, boxes = boxes, graph.Mul(boxes, back)
        outputs = {"boxes": (boxes, [4]), "scores": (scores, []), "labels": (labels, [])}
        if self.module.mask_head is not None:
            outputs["masks"] = self.masks(levels, scaled_boxes, labels, boxes), [self.own_height, self.own_width]
        return self.finished(outputs)

    def finished(self, outputs):
        graph, made = self.graph, []
        for name, (value, shape) in outputs.items():
            graph.nodes.append(helper.make_node("Identity", [value], [name], name=name))
            kind = TensorProto.INT64 if name == "labels" else TensorProto.FLOAT
            made.append(helper.make_tensor_value_info(name, kind, [self.images, self.detection_count, *shape]))
        shape = [self.images, 3, self.own_height, self.own_width]
        given = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)
        body = helper.make_graph(graph.nodes, "rcnn", [given], made, graph.initializers)
        return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def model_of(module, shape):
    """The module as an onnx.ModelProto, for images of that shape."""
    return Writer(module, shape).write()
