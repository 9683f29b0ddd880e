// ViT, trained to classify images.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_vit(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
