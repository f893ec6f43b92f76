// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text is built by hand: a trace has a million events, and the common data of
// events with one name are formatted once.

#include "trace/trace_writer.h"

#include "files/json.h"

#include <algorithm>
#include <charconv>
#include <utility>

using namespace ddphook;
using namespace ddphook::trace;

static constexpr int schemaVersion = 1;
static constexpr size_t pieceBytes = 1 << 20;

static void append(std::string *json, int64_t number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  json->append(digits, end);
}

/// Appends nanoseconds as microseconds, without rounding.
static void appendMicroseconds(std::string *json, int64_t ns) {
  if (ns < 0) {
    *json += '-';
    ns = -ns;
  }
  append(json, ns / 1000);
  const int64_t rest = ns % 1000;
  const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                         static_cast<char>('0' + rest / 10 % 10),
                         static_cast<char>('0' + rest % 10)};
  json->append(digits, sizeof(digits));
}

static void appendField(std::string *json, const char *key, int64_t number) {
  (((*json += ",\"") += key) += "\":");
  append(json, number);
}

static void appendField(std::string *json, const char *key,
                        const std::string &text) {
  (((*json += ",\"") += key) += "\":");
  appendJsonText(json, text, /*isRepaired=*/true);
}

int64_t trace::firstTime(const PartContents &part) {
  int64_t first = INT64_MAX;
  for (const PartContents::Thread &thread : part.threads)
    for (const auto *events : {&thread.events, &thread.open})
      for (const Event &event : *events)
        first = std::min(first, event.begin + part.identity.clockOffset);
  return first;
}

int64_t trace::lastTime(const PartContents &part) {
  int64_t last = part.failureTime;
  for (const PartContents::Thread &thread : part.threads) {
    for (const Event &event : thread.events)
      last = std::max(last, event.end);
    for (const Event &event : thread.open)
      last = std::max(last, event.begin);
  }
  return last + part.identity.clockOffset;
}

/// Returns the common arguments of the events with one name, after their step.
static std::string describeArguments(const Name &name) {
  std::string json;
  if (name.category == Category::Collective) {
    appendField(&json, "collective", name.collective);
    appendField(&json, "bucket", name.bucket);
    appendField(&json, "group", name.group);
    appendField(&json, "wire_bytes", name.wireBytes);
  }
  return json;
}

Status TraceWriter::begin() {
  DDPHOOK_TRY(file.open());
  json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  return Status::ok();
}

Status TraceWriter::flush(size_t least) {
  if (json.size() < least)
    return Status::ok();
  Status status = file.write(json.data(), json.size());
  json.clear();
  return status;
}

void TraceWriter::beginEvent() {
  json += hasEvents ? ",\n" : "\n";
  hasEvents = true;
}

void TraceWriter::addMetadata(int32_t rank, int tid, const char *what,
                              const std::string &name) {
  beginEvent();
  ((json += "{\"ph\":\"M\",\"name\":\"") += what) += '"';
  appendField(&json, "pid", rank);
  appendField(&json, "tid", tid);
  json += ",\"args\":{\"name\":";
  appendJsonText(&json, name, /*isRepaired=*/true);
  json += "}}";
}

/// True if `a` comes first: outer events precede those that they contain.
static bool isEarlier(const Event &a, const Event &b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

void TraceWriter::addEvents(const PartContents &part, int lane, int64_t end) {
  const auto &thread = part.threads[static_cast<size_t>(lane)];
  const int64_t offset = part.identity.clockOffset;
  std::vector<Event> events = thread.events;
  for (Event event : thread.open) {
    // A mark that no real event has, later than all events that have ended.
    event.end = INT64_MAX;
    events.push_back(event);
  }
  std::sort(events.begin(), events.end(), isEarlier);
  std::vector<std::string> heads, arguments;
  for (const Name &name : part.names) {
    std::string head = "{\"ph\":\"X\",\"cat\":\"";
    head += categoryName(name.category);
    head += "\",\"name\":";
    appendJsonText(&head, name.text, /*isRepaired=*/true);
    appendField(&head, "pid", part.identity.rank);
    appendField(&head, "tid", lane);
    head += ",\"ts\":";
    heads.push_back(std::move(head));
    arguments.push_back(describeArguments(name));
  }
  for (const Event &event : events) {
    const bool isOpen = event.end == INT64_MAX;
    const int64_t begin = event.begin + offset;
    const int64_t stop = isOpen ? end : event.end + offset;
    beginEvent();
    json += heads[event.name];
    appendMicroseconds(&json, begin - origin);
    json += ",\"dur\":";
    appendMicroseconds(&json, stop - begin);
    json += ",\"args\":{\"step\":";
    append(&json, event.step);
    json += arguments[event.name];
    if (part.names[event.name].category == Category::Collective) {
      json += ",\"wait_us\":";
      appendMicroseconds(&json, event.waited);
    }
    json += isOpen ? ",\"unfinished\":true}}" : "}}";
  }
}

Status TraceWriter::add(const PartContents &part, const RankSummary &summary) {
  const int32_t rank = part.identity.rank;
  addMetadata(rank, 0, "process_name",
              concat("rank ", rank, " (", part.identity.host, ")"));
  const char *const threadNames[laneCount] = {"steps", "communication"};
  // Events without an end last beyond the begin of all that they contain: to
  // readers, an event that begins where another one ends is its neighbour.
  const int64_t end = std::max(lastTime(part) + 1, summary.time);
  for (int lane = 0; lane < laneCount; ++lane) {
    addMetadata(rank, lane, "thread_name", threadNames[lane]);
    addEvents(part, lane, end);
    DDPHOOK_TRY(flush(pieceBytes));
  }
  if (summary.reason.empty())
    return Status::ok();
  beginEvent();
  json += "{\"ph\":\"i\",\"cat\":\"failure\",\"s\":\"p\"";
  appendField(&json, "name", "rank " + summary.state);
  appendField(&json, "pid", rank);
  appendField(&json, "tid", 0);
  json += ",\"ts\":";
  appendMicroseconds(&json, summary.time - origin);
  json += ",\"args\":{\"message\":";
  appendJsonText(&json, summary.reason, /*isRepaired=*/true);
  json += "}}";
  return Status::ok();
}

Status TraceWriter::finish(const std::string &runId, int worldSize,
                           const std::vector<RankSummary> &summaries) {
  json += "\n],\n\"ddphook\":{\"version\":";
  append(&json, schemaVersion);
  appendField(&json, "run_id", runId);
  appendField(&json, "world_size", worldSize);
  json += ",\n\"ranks\":[";
  bool isFirst = true;
  for (const RankSummary &summary : summaries) {
    const PartIdentity &identity = summary.identity;
    json += std::exchange(isFirst, false) ? "\n{\"rank\":" : ",\n{\"rank\":";
    append(&json, identity.rank);
    appendField(&json, "host", identity.host);
    appendField(&json, "process", identity.process);
    appendField(&json, "state", summary.state);
    appendField(&json, "clock_offset_ns", identity.clockOffset);
    appendField(&json, "clock_uncertainty_ns", identity.clockUncertainty);
    appendField(&json, "events", static_cast<int64_t>(summary.events));
    appendField(&json, "events_lost", static_cast<int64_t>(summary.lost));
    json += '}';
  }
  json += "],\n\"failures\":[";
  isFirst = true;
  for (const RankSummary &summary : summaries) {
    if (summary.reason.empty())
      continue;
    json += std::exchange(isFirst, false) ? "\n{\"rank\":" : ",\n{\"rank\":";
    append(&json, summary.identity.rank);
    appendField(&json, "state", summary.state);
    appendField(&json, "message", summary.reason);
    if (summary.state != "missing") {
      json += ",\"ts\":";
      appendMicroseconds(&json, summary.time - origin);
    }
    json += '}';
  }
  json += "]}}\n";
  DDPHOOK_TRY(flush());
  return file.commit(/*isDurable=*/false);
}
