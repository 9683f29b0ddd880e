// RoBERTa, XLM-RoBERTa and CamemBERT, trained to fill in masked tokens or to classify sequences.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_roberta(const text::JsonView& config, const BuildOptions& options);
// The same but for what a config has that leaves its vocabulary out.
Result<Graph> build_xlm_roberta(const text::JsonView& config, const BuildOptions& options);
// Its head is declared before what it stands on.
Result<Graph> build_camembert(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
