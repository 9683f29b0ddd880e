"""onnxscript's rewriter, which PyTorch's exporter to ONNX runs over each graph, without its search where no pattern can be.

For a pattern that ends in several nodes it lists the whole graph by operators at each node and tries all combinations, and
only then sees that the node is not of the operator that the pattern's first end names: quadratic in nodes, and most of
what exporting a Swin took (onnxscript 0.7, rewriter/_matcher.py). Here the operator is looked at first; what is found and
rewritten is the same. Where a version has not these parts, it does as it comes.
"""

import contextlib


@contextlib.contextmanager
def looking_at_operators_first():
    try:
        from onnxscript.rewriter._basics import MatchResult
        from onnxscript.rewriter._matcher import SimplePatternMatcher
        searches = SimplePatternMatcher.match
    except (ImportError, AttributeError):
        yield
        return

    def match(self, model, graph, node, **named):
        ends = self.pattern.output_nodes
        if len(ends) > 1 and not ends[0].op.matches(node.op_type):
            return MatchResult().fail("the node is of another operator")
        return searches(self, model, graph, node, **named)

    SimplePatternMatcher.match = match
    try:
        yield
    finally:
        SimplePatternMatcher.match = searches
