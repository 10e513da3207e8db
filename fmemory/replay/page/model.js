// What the page knows: sessions, their events, and the state after each of them.

const DATA = JSON.parse(document.getElementById("data").textContent);
const WORDS = DATA.words;

function word(number) {
  return number === undefined || number === null ? null : WORDS[number];
}

class Session {
  constructor(raw) {
    this.id = raw.id;
    this.runs = raw.runs;
    this.report = raw.report;
    this.events = raw.events;
    this.at = new Map();
    // By the parts of messages: which event answers a call, and which call a result answers. Ids of
    // calls may be used again, so they do not tell.
    this.answers = new Map();
    this.calls = new Map();
    this.made = new Map();
    this.flips = [];
    this.position = -1;
    this.state = emptyState();
    this.passing = new Int32Array(this.events.length);
    this.total = new Int32Array(this.events.length);
    this.events.forEach((event, index) => this.learn(event, index));
    this.go(-1);
  }

  // Reads one event, in order: its kind, its calls and answers, and what was before what it changed.
  learn(event, index) {
    event.index = index;
    this.at.set(event.seq, index);
    event.name = word(event.type);
    event.steps = [];
    // What comes after a deletion can answer nothing of before.
    if (event.name === "session_deleted") this.made.clear();
    let failed = Boolean(event.failed);
    for (const message of event.messages || []) {
      // A message answers what was called before it, and not what it calls itself.
      for (const part of message.parts.filter((one) => one[0] === "result")) {
        this.answer(part, event);
        // What a fork copied failed in another session, and counts there.
        if (part[3] && !event.copied) failed = true;
      }
      for (const part of message.parts.filter((one) => one[0] === "call")) this.call(part, event);
    }
    const state = this.state;
    if (event.messages && event.messages.length) {
      this.step(event, ["transcript", "messages", state.messages, state.messages + event.messages.length]);
    }
    let order = state.order;
    for (const [part, name, after] of event.deltas || []) {
      if (part === "order") order = after;
      else if (part === "transcript") this.step(event, [part, name, state.messages, after]);
      else {
        const before = state[part].get(name);
        this.step(event, [part, name, before, after === null ? undefined : { value: after, seq: event.seq }]);
        if (part === "feature" && after === null) order = order.filter((one) => one !== name);
        else if (part === "feature" && !before) {
          if (order === state.order) order = order.slice();
          order.push(name);
        } else if (part === "passes" && before && after !== null) {
          this.flips.push({ index, name, passes: after, loses: before.value && !after });
        }
      }
    }
    if (order !== state.order) this.step(event, ["order", "", state.order, order]);
    this.position = index;
    event.failed = failed;
    event.kind = event.name === "transcript_appended" ? "message" : event.name.includes(".") ? "other" : "change";
    this.passing[index] = state.passingCount;
    this.total[index] = state.order.length;
  }

  call(part, event) {
    const tool = part[2];
    const id = part[1] || "";
    if (!this.made.has(id)) this.made.set(id, { open: [], tool });
    const made = this.made.get(id);
    made.open.push({ part, seq: event.seq, tool });
    made.tool = tool;
  }

  // An answer is that of the nearest call before it that has its id and no answer yet.
  answer(part, event) {
    const made = this.made.get(part[1] || "");
    if (!made) return;
    const call = made.open.pop();
    if (call) this.answers.set(call.part, event.seq);
    this.calls.set(part, call || { seq: null, tool: made.tool });
  }

  step(event, step) {
    event.steps.push(step);
    apply(this.state, step, 3);
  }

  // The state after an event; -1 = before all of them.
  go(index) {
    while (this.position < index) {
      for (const step of this.events[++this.position].steps) apply(this.state, step, 3);
    }
    while (this.position > index) {
      const steps = this.events[this.position--].steps;
      for (let one = steps.length - 1; one >= 0; one--) apply(this.state, steps[one], 2);
    }
    return this.state;
  }

  // Events up to this one that cannot be read and may have changed the state, since it last began anew.
  lost(index) {
    const found = [];
    for (let at = index; at >= 0; at--) {
      const event = this.events[at];
      if (event.name === "session_deleted") break;
      if ((event.problem || event.erased) && !event.name.includes(".") && !event.stream) found.push(event.seq);
    }
    return found.reverse();
  }

  runOf(event) {
    return word(event.run);
  }
}

function emptyState() {
  return {
    manifest: new Map(),
    feature: new Map(),
    passes: new Map(),
    progress: new Map(),
    checkpoint: new Map(),
    origin: new Map(),
    order: [],
    messages: 0,
    passingCount: 0,
  };
}

// Applies a step: `which` is 3 for what is after it, 2 for what was before it.
function apply(state, step, which) {
  const [part, name] = step;
  const value = step[which];
  if (part === "transcript") state.messages = value;
  else if (part === "order") state.order = value;
  else {
    if (part === "passes") {
      const had = state.passes.get(name);
      state.passingCount += Number(Boolean(value && value.value)) - Number(Boolean(had && had.value));
    }
    if (value === undefined) state[part].delete(name);
    else state[part].set(name, value);
  }
}

const STATUS = { in_progress: "in progress", succeeded: "succeeded", failed: "failed" };

// How a checkpoint says that its run stands; one with an end and no verdict "ended".
function statusOf(checkpoint) {
  if (checkpoint.status === "in_progress" && checkpoint.completed_at) return "ended";
  return STATUS[checkpoint.status] || checkpoint.status;
}

// Why an event has no data: somebody deleted it, or it was damaged.
function whyGone(event) {
  return event.lost ? "its data is lost: a repair found it damaged" : "its data is not there any more";
}

// What an event is, in one line.
function describe(event) {
  if (event.problem) return "damaged: " + event.problem;
  if (event.messages) return event.messages.map(describeMessage).join(" · ");
  if (event.notes) return count(event.notes.length, "note") + ": " + event.notes.map((one) => one.text || one.id).join("; ");
  if (event.erased && !event.deltas) return whyGone(event);
  const told = (event.deltas || []).map((delta, index) => describeDelta(delta, event, index)).filter(Boolean);
  if (event.name === "features_replaced" || event.name === "session_initialized" || event.name === "session_deleted") {
    const features = (event.deltas || []).filter(([part]) => part === "feature").length;
    const words = { features_replaced: "feature list replaced", session_initialized: "session begins", session_deleted: "session deleted" };
    return words[event.name] + (features ? ", " + count(features, "feature") : "");
  }
  if (told.length) return told.slice(0, 6).join(" · ");
  if (event.data !== undefined) return describeData(event.data);
  return "";
}

function describeMessage(message) {
  for (const part of message.parts) {
    if (part[0] === "text" && part[1].trim()) return firstLine(part[1], 160);
  }
  const calls = message.parts.filter((part) => part[0] === "call");
  if (calls.length) return calls.map((part) => part[2] + " " + shortArguments(part[3], 80)).join(" · ");
  for (const part of message.parts) {
    if (part[0] === "result" || part[0] === "think") return firstLine(String(part[part[0] === "result" ? 2 : 1]), 160);
  }
  return "(nothing said)";
}

function describeDelta([part, name, after], event) {
  if (part === "passes") {
    const flip = event.steps.find((step) => step[0] === "passes" && step[1] === name);
    return flip && flip[2] ? name + (after ? " passes" : " does not pass any more") : null;
  }
  if (part === "progress") return after ? "progress: " + firstLine(after.summary, 140) : null;
  if (part === "checkpoint" && after) {
    return after.run_id + " " + statusOf(after) + (after.note ? ": " + firstLine(after.note, 120) : "");
  }
  if (part === "manifest") return after === null ? name + " removed" : name === "current_objective" ? "objective: " + firstLine(after, 120) : null;
  if (part === "feature") return after === null ? "feature " + name + " removed" : "feature " + name;
  if (part === "transcript") return "transcript cut to " + count(after, "message");
  if (part === "origin") return "forked from " + after.session_id + " at #" + after.seq;
  return null;
}

// The most telling value of a caller's own event: the first short texts in it.
function describeData(value) {
  const found = [];
  const look = (one, depth) => {
    if (found.length > 3 || depth > 4) return;
    if (typeof one === "string" && one.length > 2) found.push(firstLine(one, 80));
    else if (one && typeof one === "object") Object.values(one).forEach((inner) => look(inner, depth + 1));
  };
  const inner = value && value.value && typeof value.value === "object" ? value.value : value;
  const own = inner && typeof inner === "object" ? inner.data || inner.action || inner.content || inner : inner;
  if (own === null || typeof own !== "object") return firstLine(String(own), 160);
  look(own, 0);
  return found.join(" · ");
}

function shortArguments(value, most) {
  if (typeof value === "string") return firstLine(value, most);
  if (!value || typeof value !== "object") return "";
  const entries = Object.entries(value);
  const words = entries.map(([key, one]) => {
    const text = typeof one === "string" ? firstLine(one, most) : JSON.stringify(one);
    return entries.length === 1 ? text : key + "=" + text;
  });
  return firstLine(words.join("  "), most);
}
