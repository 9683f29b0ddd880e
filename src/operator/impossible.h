// Impossible: thrown where a step cannot be run as asked: a tensor beyond what a byte count holds,
// or sizes that do not fit together. Sizes come from configs and traced modules, so both are
// expected failures; unwinding is the way out of the middle of a model's forward function that
// keeps every operator free of checks. Whoever runs a whole step (step/train_step.h) turns it into
// an Error, and nothing else throws.
#pragma once

#include <string>

namespace headroom::op {

struct Impossible {
  std::string why;
  std::string hint{"look at the model's sizes, the batch and the sequence"};
};

// REQUIRES nothing: throws Impossible{why} unless `possible`.
inline void require(bool possible, const char* why) {
  if (!possible) throw Impossible{why};
}

}  // namespace headroom::op
