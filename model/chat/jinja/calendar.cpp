#include "model/chat/jinja/calendar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/log.h"

namespace millrace::jinja {

namespace {

constexpr std::array month_names = {"January",   "February", "March",    "April",
                                    "May",       "June",     "July",     "August",
                                    "September", "October",  "November", "December"};
constexpr std::array day_names = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                  "Thursday", "Friday", "Saturday"};
constexpr std::array days_before_month = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};

bool is_leap(int year) noexcept { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

std::size_t month_index(const Moment& moment) noexcept {
  return static_cast<std::size_t>(std::clamp(moment.month, 1, 12) - 1);
}

int day_of_year(const Moment& moment) noexcept {
  return days_before_month[month_index(moment)] + moment.day +
         (moment.month > 2 && is_leap(moment.year) ? 1 : 0);
}

// 0: Sunday.
std::size_t day_of_week(const Moment& moment) noexcept {
  const int years = moment.year - 1;
  const int days = years * 365 + years / 4 - years / 100 + years / 400 + day_of_year(moment);
  return static_cast<std::size_t>((days % 7 + 7) % 7);
}

std::string number(int value, int width, char fill) {
  if (fill == '-') return fmt::format("{}", value);
  if (fill == ' ') return fmt::format("{:{}}", value, width);
  return fmt::format("{:0{}}", value, width);
}

// The text of one conversion; empty if there is no such one.
std::string convert(const Moment& moment, char kind, char fill) {
  const int hour12 = moment.hour % 12 == 0 ? 12 : moment.hour % 12;
  switch (kind) {
    case 'a':
      return std::string(day_names[day_of_week(moment)]).substr(0, 3);
    case 'A':
      return day_names[day_of_week(moment)];
    case 'b':
    case 'h':
      return std::string(month_names[month_index(moment)]).substr(0, 3);
    case 'B':
      return month_names[month_index(moment)];
    case 'd':
      return number(moment.day, 2, fill);
    case 'e':
      return number(moment.day, 2, fill == '0' ? ' ' : fill);
    case 'F':
      return fmt::format("{}-{:02}-{:02}", moment.year, moment.month, moment.day);
    case 'H':
      return number(moment.hour, 2, fill);
    case 'I':
      return number(hour12, 2, fill);
    case 'j':
      return number(day_of_year(moment), 3, fill);
    case 'm':
      return number(moment.month, 2, fill);
    case 'M':
      return number(moment.minute, 2, fill);
    case 'p':
      return moment.hour < 12 ? "AM" : "PM";
    case 'S':
      return number(moment.second, 2, fill);
    case 'T':
      return fmt::format("{:02}:{:02}:{:02}", moment.hour, moment.minute, moment.second);
    case 'y':
      return number(moment.year % 100, 2, fill);
    case 'Y':
      return fmt::format("{}", moment.year);
    case '%':
      return "%";
    default:
      return {};
  }
}

}  // namespace

Result<std::string> format_moment(const Moment& moment, std::string_view format) {
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out.push_back(format[at]);
      continue;
    }
    const std::size_t begin = at++;
    char fill = '0';
    if (at < format.size() && format[at] == '-') fill = format[at++];
    const std::string text = at < format.size() ? convert(moment, format[at], fill) : std::string();
    if (text.empty())
      return Error{ErrorCode::format, fmt::format("strftime_now: '{}' is not supported",
                                                  printable(format.substr(begin, 3)))};
    out += text;
  }
  return out;
}

}  // namespace millrace::jinja
