// What a model file holds, whether this program can run it or not: for people (text) and scripts
// (JSON). Reads headers only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/format/checkpoint.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace millrace {

// All texts are printable(): nothing in them can steer a terminal.
struct ModelInspection {
  struct FileSize {
    std::string path;
    std::uint64_t bytes = 0;
  };
  // Tensors of one type and role: "embedding", "head", "attention", "experts", ….
  struct TypeUse {
    std::string role, type;
    std::uint64_t tensors = 0, bytes = 0;
  };
  struct Tensor {
    std::string name, type, role;
    std::array<std::uint64_t, 4> ne{};
    std::uint32_t dims = 1, file = 0;
    std::uint64_t offset_bytes = 0, bytes = 0;
  };

  std::vector<FileSize> files;
  std::string architecture, name;
  std::uint64_t layers = 0, width = 0, context = 0;  // 0: the file does not say
  std::uint64_t parameters = 0, tensor_bytes = 0, metadata_bytes = 0;
  std::vector<TypeUse> types;   // in order of bytes, largest first
  std::vector<Tensor> tensors;  // in file order

  // Routed experts; expert_layers 0: none.
  std::uint64_t expert_layers = 0, experts = 0, experts_used = 0, pool_bytes = 0;
  std::uint64_t expert_bytes_min = 0, expert_bytes_max = 0;  // all slices of one
  std::uint64_t expert_alignment = 0;  // largest power of two that divides all places and sizes

  std::string tokenizer, pretokenizer;  // as the file names them; empty: none
  std::uint64_t tokens = 0;
  std::string template_state;  // "none", "in the file", "built in for this family"
  std::uint64_t template_bytes = 0;

  bool runnable = false;
  std::vector<std::string> problems;  // what keeps it from running, or running as a chat
};

// Errors as open_checkpoint(): only a file that is no model, or a malformed one, is refused.
Result<ModelInspection> inspect_model(const std::string& path);

// `with_tensors`: also the list of tensors.
std::string inspection_text(const ModelInspection& inspection, bool with_tensors);
Json inspection_json(const ModelInspection& inspection, bool with_tensors);

}  // namespace millrace
