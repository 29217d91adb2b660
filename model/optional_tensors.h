// OptionalTensors: which layers have the tensors that a file may leave out. Such a tensor is there
// in all layers of its kind, with those that belong to it (the bias of q with that of k), or in
// none: one that is missing by itself would change every answer in silence. Lives only while a
// ModelSpec is built; one thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "model/model_spec.h"
#include "model/tensor_finder.h"
#include "runtime/base/result.h"

namespace millrace {

class OptionalTensors {
 public:
  // Once for each layer that might have `name`, under its role.
  void tell(VectorRole role, const std::string& name, bool present);
  // The same for a factor of matrices of a type, which converters leave out where it is 1.
  void tell_factor(VectorRole role, DType of, const std::string& name, bool present);

  // `format` if a tensor is missing that others of its group show to belong to the model: names it
  // and the first of those.
  Status check(const TensorFinder& finder) const;
  // Factors that some layers have and others do not, as sentences.
  std::vector<std::string> notes() const;

 private:
  struct Group {
    std::string there, missing;  // the first names; empty: none
    void tell(const std::string& name, bool present) {
      std::string& first = present ? there : missing;
      if (first.empty()) first = name;
    }
    bool torn() const { return !there.empty() && !missing.empty(); }
  };

  std::map<VectorRole, Group> groups_;
  std::map<std::pair<VectorRole, DType>, Group> factors_;
};

}  // namespace millrace
