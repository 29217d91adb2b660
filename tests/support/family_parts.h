// A sound small checkpoint of a family, made from its FamilySpec alone: metadata and tensor
// extents, no weights. For tests of what is read and refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/arch/family.h"
#include "model/format/checkpoint.h"

namespace millrace::testing {

// Nothing for kinds of attention that this does not know: those families need a file.
std::optional<Checkpoint::Parts> family_parts(const FamilySpec& family);

// Whether a file of the family may leave out this tensor and no other. (Biases and norms that some
// files have are in all layers or in none.)
bool may_be_missing(const FamilySpec& family, const std::string& tensor);

}  // namespace millrace::testing
