// The metadata of a checkpoint folder, as the keys that GGUF files have. Lives only while a
// Checkpoint is built; one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "model/format/checkpoint.h"

namespace millrace {

class MetadataWriter {
 public:
  explicit MetadataWriter(Checkpoint::Parts& parts) : parts_(parts) {}

  // Replaces what was set before.
  void set(const std::string& key, MetaValue value) {
    if (parts_.meta.insert_or_assign(key, std::move(value)).second) parts_.keys.push_back(key);
  }
  // Keys that begin with a dot are the architecture's.
  void set_architecture(std::string name) {
    architecture_ = std::move(name);
    set("general.architecture", architecture_);
  }
  const std::string& architecture() const noexcept { return architecture_; }
  void set_own(std::string_view key, MetaValue value) {
    set(architecture_ + std::string(key), std::move(value));
  }

 private:
  Checkpoint::Parts& parts_;
  std::string architecture_;
};

}  // namespace millrace
