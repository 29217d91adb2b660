// The report after a run: JSON with the contract's keys, and a table for people.
#pragma once

#include <string>

#include "runtime/base/json.h"
#include "runtime/engine.h"
#include "runtime/generate.h"
#include "runtime/generate_many.h"

namespace millrace {

// What is planned, before anything is loaded: the memory, and the speed to expect with its reason.
std::string plan_table(const Engine& engine);
Json report_json(const Engine& engine, const GenerateResult& result);
std::string report_table(const Engine& engine, const GenerateResult& result);
// Of several sequences in step. The keys of one run with `text`, `seed` and `state_hash` null, and
// with `parallel`, `decode.steps`, `decode.bytes_per_step` and `sequences`; each of those has
// text, finish_reason, error, seed, state_hash, prompt and decode as of one run.
Json report_json(const Engine& engine, const ManyResult& result);
std::string report_table(const Engine& engine, const ManyResult& result);

}  // namespace millrace
