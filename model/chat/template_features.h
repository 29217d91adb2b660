// What a template can do, found out by rendering small conversations with it: published templates
// differ in what they take, and none of them says so.
#pragma once

#include <string>
#include <vector>

#include "model/chat/chat_message.h"
#include "model/chat/jinja/template.h"

namespace millrace {

struct TemplateFeatures {
  bool tools = false;              // it shows the tools it is given
  bool arguments_as_text = false;  // of calls: JSON text, not an object
  bool content_as_parts = false;   // a list of parts, not a string
};

TemplateFeatures probe_template(const jinja::Template& program, const std::string& bos,
                                const std::string& eos);

// The variables of a rendering, shaped as the template takes them.
Result<std::vector<jinja::Variable>> template_variables(const ChatRequest& request,
                                                        const TemplateFeatures& features,
                                                        const std::string& bos,
                                                        const std::string& eos);

}  // namespace millrace
