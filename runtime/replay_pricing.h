// What a replay is priced with where no flags say it: this machine's drive and kernels.
#pragma once

#include <string>

#include "runtime/base/result.h"

namespace millrace {

struct ReplayPricing {
  double drive_bytes_per_second = 0;
  double latency_seconds = 0;            // until a first piece is there
  double compute_seconds = 0;            // per token, everything resident
  double expert_share = 0;               // of it, in routed experts
  double head_share = 0;                 // of it, behind the last layer
  std::string drive_from, compute_from;  // in words
};

// By the profile of the drive that the model lies on, in the pieces that the engine would choose,
// and half a second of its kernels. A drive without profile gets what drives give that people
// have. Errors of the model's header; `memory` if nothing can be measured.
Result<ReplayPricing> measure_pricing(const std::string& model_path,
                                      const std::string& profile_folder);

}  // namespace millrace
