// millrace: the one program. Each command is a thin file in commands/ over the library.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/commands/bench.h"
#include "tools/commands/kernels.h"
#include "tools/version.h"

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// llama.cpp users type -ub 256 and -np 4, others -n=2; CLI11 knows only one-letter short names, and
// their values without "=".
std::vector<std::string> normalise(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    for (const char* name : {"-ub", "-np"})
      if (argument == name || argument.starts_with(std::string(name) + "="))
        argument.insert(0, "-");
    const bool short_with_value =
        argument.size() > 2 && argument[0] == '-' && is_letter(argument[1]) && argument[2] == '=';
    if (short_with_value) arguments.push_back(argument.substr(0, 2));
    arguments.push_back(short_with_value ? argument.substr(3) : std::move(argument));
  }
  return std::vector<std::string>(arguments.rbegin(),
                                  arguments.rend());  // CLI11 takes them reversed
}

// In the words of all range errors, what CLI11 calls "Could not convert: FLAG = VALUE".
std::string wording(const CLI::Error& error) {
  const std::string text = error.what();
  const std::string head = "Could not convert: ";
  const std::size_t equals = text.find(" = ");
  if (text.rfind(head, 0) != 0 || equals == std::string::npos) return text;
  return text.substr(head.size(), equals - head.size()) + " " + text.substr(equals + 3) +
         ": must be a number, and one that this flag can take";
}

// Help or version on stdout, or what was wrong with the words on stderr.
int say(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream err;
  const bool asked = app.exit(error, out, err) == 0;
  std::fputs(err.str().c_str(), stderr);
  millrace::tools::ResultOutput results;
  results.write(out.str());
  if (const auto done = results.status(); !done) return millrace::tools::report_error(done.error());
  return asked ? 0 : 1;
}

// With the flags that would help, of those that the command has.
int out_of_memory(const CLI::App& app) {
  std::string flags;
  for (const CLI::App* command : app.get_subcommands())
    for (const std::string name :
         {"--cache", "--ctx", "--ub", "--threads", "--size", "--tokens", "--columns"}) {
      const CLI::Option* option = command->get_option_no_throw(name);
      if (option == nullptr) continue;
      if (name == "--tokens" && option->get_type_name() == "TEXT") continue;  // a file
      flags += (flags.empty() ? ": lower " : " or ") + name;
    }
  std::fprintf(stderr, "millrace: error: out of memory%s\n", flags.c_str());
  return 4;
}

int run_program(int argc, char** argv) {
  CLI::App app{
      "millrace: runs Mixture-of-Experts models that are larger than memory, streaming their "
      "experts from the drive.",
      "millrace"};
  // The last of several wins, so that scripts can take further flags behind their own.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("millrace: error: {}\nRun with --help for more information.\n",
                       wording(error));
  });
  const std::string version = std::string("millrace ") + millrace::tools::version;
  app.set_version_flag("--version", version, "print the version and exit");
  app.require_subcommand(0, 1);
  app.footer(
      "Sizes: bytes, 6G, 512MiB (1024-based), 25% (of the pool or trunk), all.\n"
      "Exit codes: 0 done, 1 usage, 2 I/O, 3 model refused, 4 memory plan refused, 5 verification "
      "failed, "
      "130 Ctrl-C.");
  int code = 0;
  millrace::tools::add_run(app, code);
  millrace::tools::add_fixture(app, code);
  millrace::tools::add_inspect(app, code);
  millrace::tools::add_pack(app, code);
  millrace::tools::add_verify(app, code);
  millrace::tools::add_logits(app, code);
  millrace::tools::add_tokenize(app, code);
  millrace::tools::add_perplexity(app, code);
  millrace::tools::add_replay(app, code);
  millrace::tools::add_trace(app, code);
  millrace::tools::add_floor(app, code);
  millrace::tools::add_doctor(app, code);
  millrace::tools::add_estimate(app, code);
  millrace::tools::add_bench(app, code);
  millrace::tools::add_kernels(app, code);
  for (CLI::App* command : app.get_subcommands({}))
    command->set_version_flag("--version", version, "print the version and exit");
  try {
    app.parse(normalise(argc, argv));
  } catch (const CLI::ParseError& error) {
    return say(app, error);
  } catch (const std::bad_alloc&) {
    return out_of_memory(app);
  }
  if (app.get_subcommands().empty()) {
    std::fputs(app.help().c_str(), stderr);
    return 1;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that is gone and a limit of file sizes are seen by the write.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "millrace: error: out of memory\n");
    return 4;
  } catch (
      const std::exception& error) {  // the outermost of the three doors for others' exceptions
    std::fprintf(stderr, "millrace: %s\n", error.what());
    return 2;
  }
}
