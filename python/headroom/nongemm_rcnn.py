"""Faster and Mask R-CNN with a ResNet-50 and a feature pyramid, for `headroom bench nongemm`.

Written from the papers (arXiv 1506.01497, 1703.06870, 1612.03144, 1512.03385) with the sizes that torchvision documents
for fasterrcnn_resnet50_fpn and maskrcnn_resnet50_fpn, so that a torchvision for this PyTorch is not needed. The same
model as a graph of ONNX, with the weights of this one, is nongemm_rcnn_onnx.py: it follows this file part by part.

How many boxes go on is stated (Sizes), since random weights have no boxes worth keeping: what suppression leaves is
filled up with the best of what it took. PyTorch alone has neither RoI align nor suppression: both are operators of
their own here, made of plain ones, so that a profile names them.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours
STRIDES = (4, 8, 16, 32, 64)                  # of the pyramid's levels P2 to P6
ANCHOR_SIDES = (32, 64, 128, 256, 512)        # one of each level
ASPECTS = (0.5, 1.0, 2.0)                     # height by width
MOST_GROWTH = math.log(1000 / 16)             # of a box, by its side's logarithm
RPN_OVERLAP, CLASS_OVERLAP = 0.7, 0.5         # above it a box is suppressed
LEAST_SIDE = 1e-3                             # pixels of a box worth keeping
CLASS_WEIGHTS = (10.0, 10.0, 5.0, 5.0)        # by which a box's corrections are divided
ROI_LEVELS = 4                                # P6 is for proposals alone
USUAL_SIDE, USUAL_LEVEL = 224, 2              # a box of that side is taken from P4, the third level
SAMPLES = 2                                   # of RoI align, in a bin and direction
BOX_BINS, MASK_BINS = 7, 14
SUPPRESSED = 1e6                              # what a suppressed box's score is lowered by
# Deviations of the weights that correct boxes, which else would carry them far from where they were: the papers' own
# (arXiv 1506.01497 section 3.1, arXiv 1504.08083 section 2.3).
PROPOSAL_DEVIATION, BOX_DEVIATION = 0.01, 0.001


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What the published models have, and how many boxes go on from each stage."""

    has_masks: bool = False
    classes: int = 91            # background among them
    shorter_side: int = 800      # pixels that an image is scaled to,
    longer_side: int = 1333      # as far as this allows
    blocks: tuple = (3, 4, 6, 3)
    proposals: int = 1000        # of each level before suppression, of all after it
    candidates: int = 1000       # boxes with a class, before suppression
    detections: int = 100

    def scaled(self, height, width):
        """The image's size in the network."""
        scale = min(self.shorter_side / min(height, width), self.longer_side / max(height, width))
        return int(height * scale), int(width * scale)


# ---- backbone -----------------------------------------------------------------------------------

class FrozenNorm(nn.Module):
    """Batch normalization whose statistics are constants: a factor and a shift, no parameters."""

    def __init__(self, channels):
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def factor_and_shift(self):
        factor = self.weight * (self.running_var + 1e-5).rsqrt()
        shape = (-1, 1, 1)
        return factor.view(shape), (self.bias - self.running_mean * factor).view(shape)

    def forward(self, x):
        factor, shift = self.factor_and_shift()
        return x * factor + shift


class NormedConv(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = FrozenNorm(outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.narrow = NormedConv(inputs, width, 1)
        self.middle = NormedConv(width, width, 3, stride)
        self.widen = NormedConv(width, 4 * width, 1)
        self.shortcut = NormedConv(inputs, 4 * width, 1, stride) if stride != 1 or inputs != 4 * width else None

    def forward(self, x):
        y = functional.relu(self.narrow(x))
        y = self.widen(functional.relu(self.middle(y)))
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Backbone(nn.Module):
    """ResNet-50 without its classifier; the outputs of its four stages."""

    def __init__(self, blocks):
        super().__init__()
        self.stem = NormedConv(3, 64, 7, 2)
        stages, inputs = [], 64
        for index, count in enumerate(blocks):
            width, stage = 64 << index, []
            for block in range(count):
                stage.append(Bottleneck(inputs, width, 2 if block == 0 and index > 0 else 1))
                inputs = 4 * width
            stages.append(nn.Sequential(*stage))
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.stem(x)), 3, 2, 1)
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs


class Pyramid(nn.Module):
    """Each stage's output in 256 channels, with what the coarser ones say added; and a fifth, coarser still."""

    def __init__(self, channels=(256, 512, 1024, 2048), width=256):
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(count, width, 1) for count in channels)
        self.outer = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in channels)

    def forward(self, stages):
        sums = [inner(stage) for inner, stage in zip(self.inner, stages)]
        for fine in reversed(range(len(sums) - 1)):
            sums[fine] = sums[fine] + functional.interpolate(sums[fine + 1], size=sums[fine].shape[-2:], mode="nearest")
        levels = [outer(one) for outer, one in zip(self.outer, sums)]
        return levels + [functional.max_pool2d(levels[-1], 1, 2)]


# ---- boxes: [..., 4] of left, top, right, bottom, in pixels --------------------------------------

def anchors_of(level, height, width, like):
    """Three boxes around each cell of a level, cell by cell."""
    aspects = torch.tensor(ASPECTS, dtype=torch.float32, device=like.device).sqrt()
    halves = torch.stack((1 / aspects, aspects), dim=1) * (ANCHOR_SIDES[level] / 2)
    y, x = (torch.arange(count, dtype=torch.float32, device=like.device) * STRIDES[level] for count in (height, width))
    y, x = torch.meshgrid(y, x, indexing="ij")
    centres = torch.stack((x, y), dim=-1).view(-1, 1, 2)
    return torch.cat((centres - halves, centres + halves), dim=-1).view(-1, 4)


def corrected(boxes, corrections, weights=(1.0, 1.0, 1.0, 1.0)):
    sides = boxes[..., 2:] - boxes[..., :2]
    centres = boxes[..., :2] + sides / 2
    moved = centres + corrections[..., :2] / weights[0] * sides
    halves = sides * (corrections[..., 2:] / weights[2]).clamp(max=MOST_GROWTH).exp() / 2
    return torch.cat((moved - halves, moved + halves), dim=-1)


def clipped(boxes, height, width):
    return torch.minimum(boxes.clamp(min=0), boxes.new_tensor((width, height, width, height)))


def is_large(boxes):
    return ((boxes[..., 2:] - boxes[..., :2]) >= LEAST_SIDE).all(dim=-1)


def of(values, index):
    """The boxes of an index of each image."""
    return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def best(scores, kept, count):
    """The best of each image: those that are kept, and where these are too few the best of the others."""
    return (scores.double() - SUPPRESSED * (~kept)).topk(count).indices


@torch.library.custom_op("headroom::nms", mutates_args=())
def suppressed(boxes: torch.Tensor, overlap: float) -> torch.Tensor:
    """Of boxes [images, n, 4], best first: which stay, if each takes away the worse ones that overlap it.

    Greedy suppression is the fixed point of "stays if none that stays takes it away", since a box is taken by better
    ones alone: iterated from all staying, it is reached in as many rounds as the longest chain of boxes is long.
    """
    sides = boxes[..., 2:] - boxes[..., :2]
    areas = sides[..., 0] * sides[..., 1]
    shared = (torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
              - torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])).clamp(min=0)
    shared = shared[..., 0] * shared[..., 1]
    takes = (shared / (areas[:, :, None] + areas[:, None, :] - shared) > overlap).triu(1)
    stays = torch.ones_like(areas, dtype=torch.bool)
    while True:
        now = ~(takes & stays[:, :, None]).any(dim=1)
        if torch.equal(now, stays):
            return now
        stays = now


@suppressed.register_fake
def _(boxes, overlap):
    return boxes.new_empty(boxes.shape[:-1], dtype=torch.bool)


@torch.library.custom_op("headroom::roi_align", mutates_args=())
def roi_align(level: torch.Tensor, boxes: torch.Tensor, images: torch.Tensor, scale: float, bins: int) -> torch.Tensor:
    """Of boxes [n, 4], each on its image of the level [images, channels, height, width]: [n, channels, bins, bins]."""
    (_, channels, height, width), count, samples = level.shape, len(boxes), bins * SAMPLES
    steps = (torch.arange(samples, device=boxes.device) + 0.5) / samples
    starts = boxes[:, :2] * scale
    sides = (boxes[:, 2:] * scale - starts).clamp(min=1)
    places = starts[:, :, None] + sides[:, :, None] * steps  # [n, x and y, samples]
    ends = places.new_tensor((width, height))[:, None]
    is_inside = (places >= -1) & (places <= ends)
    places = torch.minimum(places.clamp(min=0), ends - 1) * 2 / (ends - 1).clamp(min=1) - 1
    x = places[:, 0, None, :].expand(count, samples, samples)
    y = places[:, 1, :, None].expand(count, samples, samples)
    grid = torch.stack((x, y), dim=-1).to(level.dtype)
    inside = (is_inside[:, 0, None, :] & is_inside[:, 1, :, None]).to(level.dtype)
    output = level.new_empty(count, channels, bins, bins)
    for image in range(len(level)):
        its = (images == image).nonzero()[:, 0]
        if not len(its):
            continue
        sampled = functional.grid_sample(level[image:image + 1], grid[its].view(1, -1, samples, 2),
                                         padding_mode="border", align_corners=True)[0]
        sampled *= inside[its].view(-1, samples)
        binned = functional.avg_pool2d(sampled, SAMPLES).view(channels, len(its), bins, bins)
        output[its] = binned.transpose(0, 1)
    return output


@roi_align.register_fake
def _(level, boxes, images, scale, bins):
    return level.new_empty(len(boxes), level.shape[1], bins, bins)


# ---- heads --------------------------------------------------------------------------------------

class ProposalHead(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.score = nn.Conv2d(width, len(ASPECTS), 1)
        self.box = nn.Conv2d(width, 4 * len(ASPECTS), 1)
        self.box.weight_deviation = PROPOSAL_DEVIATION

    def forward(self, level):
        x = functional.relu(self.conv(level))
        return (self.score(x).permute(0, 2, 3, 1).flatten(1).float(),
                self.box(x).permute(0, 2, 3, 1).reshape(len(x), -1, 4).float())


class BoxHead(nn.Module):
    def __init__(self, classes, width=256, hidden=1024):
        super().__init__()
        self.first = nn.Linear(width * BOX_BINS ** 2, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, classes)
        self.box = nn.Linear(hidden, 4 * classes)
        self.box.weight_deviation = BOX_DEVIATION

    def forward(self, x):
        x = functional.relu(self.second(functional.relu(self.first(x.flatten(1)))))
        return self.score(x).float(), self.box(x).float()


class MaskHead(nn.Module):
    def __init__(self, classes, width=256):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.up = nn.ConvTranspose2d(width, width, 2, 2)
        self.mask = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        for conv in self.convs:
            x = functional.relu(conv(x))
        return self.mask(functional.relu(self.up(x)))


# ---- the whole ----------------------------------------------------------------------------------

class RegionCnn(nn.Module):
    """Images [n, 3, height, width] to boxes, scores and labels of their detections, and masks."""

    def __init__(self, **sizes):
        super().__init__()
        self.sizes = Sizes(**sizes)
        self.backbone = Backbone(self.sizes.blocks)
        self.pyramid = Pyramid()
        self.proposal_head = ProposalHead()
        self.box_head = BoxHead(self.sizes.classes)
        self.mask_head = MaskHead(self.sizes.classes) if self.sizes.has_masks else None
        self.by_level = None  # how many proposals each level got, in the latest run

    def forward(self, images):
        self.by_level = None
        height, width = self.sizes.scaled(*images.shape[-2:])
        levels = self.pyramid(self.backbone(self.scaled(images, height, width)))
        proposals = self.proposals(levels, height, width)
        boxes, scores, labels = self.detections(levels, proposals, height, width)
        back = boxes.new_tensor((images.shape[-1] / width, images.shape[-2] / height)).repeat(2)
        output = {"boxes": boxes * back, "scores": scores, "labels": labels}
        if self.mask_head is not None:
            output["masks"] = self.masks(levels, boxes, labels, output["boxes"], images.shape[-2:])
        return output

    def scaled(self, images, height, width):
        """Normalized, scaled, and filled up to whole cells of the coarsest stage."""
        mean, deviation = (images.new_tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
        images = functional.interpolate((images - mean) / deviation, size=(height, width), mode="bilinear")
        below, right = -height % STRIDES[3], -width % STRIDES[3]
        return functional.pad(images, (0, right, 0, below)) if below or right else images

    def proposals(self, levels, height, width):
        """[images, proposals, 4]"""
        boxes, scores, kept = [], [], []
        for index, level in enumerate(levels):
            score, corrections = self.proposal_head(level)
            whole = corrected(anchors_of(index, *level.shape[-2:], level), corrections)
            score, chosen = score.topk(min(self.sizes.proposals, score.shape[1]))
            some = clipped(of(whole, chosen), height, width)
            boxes.append(some)
            scores.append(score)
            kept.append(suppressed(some, RPN_OVERLAP) & is_large(some))
        boxes, scores, kept = (torch.cat(parts, dim=1) for parts in (boxes, scores, kept))
        return of(boxes, best(scores, kept, min(self.sizes.proposals, boxes.shape[1])))

    def regions(self, levels, boxes, bins):
        """What the pyramid has at boxes [images, n, 4], each in the level of its size: [images * n, ...]."""
        images = torch.arange(len(boxes), device=boxes.device).repeat_interleave(boxes.shape[1])
        boxes = boxes.flatten(0, 1)
        sides = boxes[:, 2:] - boxes[:, :2]
        octaves = (sides[:, 0] * sides[:, 1]).sqrt().div(USUAL_SIDE).add(1e-6).log2()
        chosen = (octaves.floor() + USUAL_LEVEL).clamp(0, ROI_LEVELS - 1)
        output = levels[0].new_empty(len(boxes), levels[0].shape[1], bins, bins)
        counts = []
        for index in range(ROI_LEVELS):
            its = (chosen == index).nonzero()[:, 0]
            output[its] = roi_align(levels[index], boxes[its], images[its], 1 / STRIDES[index], bins)
            counts.append(len(its))
        self.by_level = self.by_level or counts  # proposals come first, detections after them
        return output

    def detections(self, levels, proposals, height, width):
        count = len(proposals)
        scores, corrections = self.box_head(self.regions(levels, proposals, BOX_BINS))
        classes = self.sizes.classes
        whole = corrected(proposals.view(-1, 1, 4), corrections.view(-1, classes, 4), CLASS_WEIGHTS)
        whole = clipped(whole, height, width)[:, 1:].reshape(count, -1, 4)  # without the background
        scores = scores.softmax(dim=-1)[:, 1:].reshape(count, -1)
        scores, chosen = scores.topk(min(self.sizes.candidates, scores.shape[1]))
        boxes, labels = of(whole, chosen), chosen % (classes - 1) + 1
        apart = boxes + (labels * (max(height, width) + 1)).unsqueeze(-1)  # boxes of two classes never overlap
        kept = suppressed(apart, CLASS_OVERLAP) & is_large(boxes)
        chosen = best(scores, kept, min(self.sizes.detections, scores.shape[1]))
        return of(boxes, chosen), scores.gather(1, chosen), labels.gather(1, chosen)

    def masks(self, levels, boxes, labels, own_boxes, own_size):
        """Each detection's mask, laid where its box is in the image as it was given: [images, n, height, width]."""
        x = self.mask_head(self.regions(levels, boxes, MASK_BINS))
        index = labels.view(-1, 1, 1, 1).expand(-1, 1, *x.shape[-2:])
        x = x.gather(1, index).sigmoid()
        starts = own_boxes.flatten(0, 1)[:, :2]
        sides = (own_boxes.flatten(0, 1)[:, 2:] - starts).clamp(min=1)
        rows, columns = ((torch.arange(count, device=x.device) + 0.5) for count in own_size)
        across = (columns - starts[:, :1]) / sides[:, :1] * 2 - 1
        down = (rows - starts[:, 1:]) / sides[:, 1:] * 2 - 1
        shape = (len(x), len(rows), len(columns))
        grid = torch.stack((across[:, None, :].expand(shape), down[:, :, None].expand(shape)), dim=-1)
        laid = functional.grid_sample(x, grid.to(x.dtype), align_corners=False)
        return laid.view(*boxes.shape[:2], *own_size)

    def stated(self):
        """What is said instead of found out, beside a measurement by any engine."""
        sizes = self.sizes
        return [f"stated, since random weights find nothing: {sizes.proposals} proposals, {sizes.candidates} "
                f"candidates and {sizes.detections} detections an image"]

    def remarks(self):
        """Of this form alone."""
        levels = ", ".join(f"{count} from P{index + 2}" for index, count in enumerate(self.by_level or ()))
        return [f"random weights took proposals {levels}",
                "PyTorch alone has no operators for RoI align and suppression of boxes: made of plain ones here"]

    def onnx_model(self, images):
        from headroom import nongemm_rcnn_onnx
        return nongemm_rcnn_onnx.model_of(self, tuple(images.shape))
