// The report after a run: JSON with the contract's keys, and a table for people.
#pragma once

#include <string>

#include "runtime/base/json.h"
#include "runtime/engine.h"
#include "runtime/generate.h"

namespace millrace {

Json report_json(const Engine& engine, const GenerateResult& result);
std::string report_table(const Engine& engine, const GenerateResult& result);

}  // namespace millrace
