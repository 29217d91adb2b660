#include "tools/user_folders.h"

#include <cstdlib>

namespace millrace::tools {

namespace {

// An absolute path from the environment; the rules want others to be ignored.
std::string absolute_path(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

}  // namespace

std::string cache_folder() {
  if (const std::string cache = absolute_path("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/millrace";
  if (const std::string home = absolute_path("HOME"); !home.empty())
    return home + "/.cache/millrace";
  return {};
}

}  // namespace millrace::tools
