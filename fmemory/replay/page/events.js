// The list of events: messages with folded tool calls, and lines for everything else. Events are
// built in blocks when they come near the window, so that a long log opens at once.

const BLOCK = 40;
const GAP_S = 300;

class List {
  constructor(session, root, onPick) {
    this.session = session;
    this.root = root;
    this.onPick = onPick;
    this.blocks = [];
    this.filter = "all";
    this.query = null;
    this.watcher = new IntersectionObserver((seen) => this.see(seen), { rootMargin: "900px 0px" });
  }

  // Lays out all events that the filter lets through; builds none of them.
  lay(filter) {
    this.filter = filter;
    this.watcher.disconnect();
    this.shown = this.session.events.filter((event) => passes(event, filter)).map((event) => event.index);
    this.places = new Map(this.shown.map((index, place) => [index, place]));
    this.blocks = [];
    const made = [];
    for (let first = 0; first < this.shown.length; first += BLOCK) {
      const node = el("div", { class: "block" });
      const block = { node, first, filled: false };
      const height = this.indexes(block).reduce((sum, index) => sum + guess(this.session.events[index]), 0);
      node.style.height = height + "px";
      node.block = block;
      this.blocks.push(block);
      made.push(node);
    }
    if (!made.length) made.push(el("p", { class: "note" }, "no such event"));
    this.root.replaceChildren(...made);
    this.blocks.forEach((block) => this.watcher.observe(block.node));
  }

  indexes(block) {
    return this.shown.slice(block.first, block.first + BLOCK);
  }

  see(seen) {
    for (const one of seen) if (one.isIntersecting) this.fill(one.target.block);
  }

  // Builds a block; what lies below it on the screen stays where it is.
  fill(block) {
    if (!block || block.filled) return;
    block.filled = true;
    this.watcher.unobserve(block.node);
    const before = block.node.getBoundingClientRect();
    const made = [];
    for (const index of this.indexes(block)) made.push(...this.separators(index), this.event(index));
    block.node.append(...made);
    block.node.style.height = "";
    const above = before.bottom < stickyHeight();
    if (above) window.scrollBy({ top: block.node.getBoundingClientRect().height - before.height, behavior: "instant" });
    if (this.onFilled) this.onFilled(block.node);
  }

  blockOf(index) {
    const place = this.places.get(index);
    return place === undefined ? null : this.blocks[Math.floor(place / BLOCK)];
  }

  // The element of an event, built if it is not yet; null if the filter hides it.
  node(index) {
    const block = this.blockOf(index);
    if (!block) return null;
    this.fill(block);
    return block.node.querySelector('[data-index="' + index + '"]');
  }

  mark(index, scroll) {
    const old = this.root.querySelector(".event.current");
    if (old) {
      old.classList.remove("current");
      old.removeAttribute("aria-current");
    }
    const node = this.node(index);
    if (!node) return;
    node.classList.add("current");
    node.setAttribute("aria-current", "true");
    if (scroll) this.show(index, node);
  }

  show(index, node) {
    const place = this.places.get(index);
    const block = Math.floor(place / BLOCK);
    for (const near of [block - 1, block + 1]) if (this.blocks[near]) this.fill(this.blocks[near]);
    const box = node.getBoundingClientRect();
    const top = stickyHeight() + 8;
    const bottom = window.innerHeight - footHeight() - 8;
    const fits = box.top >= top && box.bottom <= bottom;
    if (!fits) window.scrollBy({ top: box.top - top - Math.max(0, Math.min(60, (bottom - top - box.height) / 2)), behavior: "instant" });
  }

  // The next event that the filter shows, in a direction; null at the end.
  beside(index, direction) {
    const shown = this.shown;
    let low = 0;
    let high = shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (shown[middle] < index) low = middle + 1;
      else high = middle;
    }
    const there = shown[low] === index;
    const place = direction > 0 ? low + (there ? 1 : 0) : low - 1;
    return place >= 0 && place < shown.length ? shown[place] : null;
  }

  separators(index) {
    const events = this.session.events;
    const event = events[index];
    const before = events[index - 1];
    const made = [];
    if (!before || day(before.at) !== day(event.at)) made.push(el("h3", { class: "day" }, day(event.at)));
    else if (event.at - before.at >= GAP_S * 1000) {
      made.push(el("div", { class: "gap" }, "nothing for " + duration((event.at - before.at) / 1000)));
    }
    const run = this.session.runOf(event);
    if (run && (!before || this.session.runOf(before) !== run) && this.session.runs.length > 1) {
      const by = word(event.by);
      made.push(el("div", { class: "run-begins" }, "run ", said(run, "b"), by ? " · " : "", by ? said(by) : ""));
    }
    return made;
  }

  event(index) {
    const event = this.session.events[index];
    const names = ["event", event.kind];
    if (event.failed) names.push("failed");
    if (event.erased || event.problem) names.push("hollow");
    const node = el(
      "article",
      { class: names.join(" "), "data-index": index, "data-seq": event.seq },
      el("div", { class: "gutter" }, link(event.seq, "seq"), el("time", { title: moment(event.at), datetime: new Date(event.at).toISOString() }, clock(event.at))),
    );
    const body = el("div", { class: "body" });
    if (event.messages) event.messages.forEach((message) => body.append(this.message(message, event)));
    else if (event.notes) body.append(...notes(event));
    else body.append(...this.line(event));
    node.append(body);
    return node;
  }

  message(message, event) {
    const parts = message.parts;
    const answers = parts.length > 0 && parts.every((part) => part[0] === "result" || part[0] === "media");
    const role = answers ? "tool" : message.role;
    const node = el("div", { class: "message " + role });
    if (!answers || message.name) {
      const head = el("div", { class: "role" }, role);
      if (message.name) head.append(" ", said(message.name));
      if (message.is_error && !answers) head.append(" ", el("span", { class: "badge bad" }, "error"));
      node.append(head);
    }
    for (const part of parts) node.append(...this.part(part, event));
    if (!parts.length) node.append(el("p", { class: "faint" }, "(nothing said)"));
    return node;
  }

  part(part, event) {
    switch (part[0]) {
      case "text":
        return prose(part[1]);
      case "think":
        return [fold("think", ["thinking ", said(firstLine(part[1], 110), "span", "faint")], () => [longText(part[1], "div", "prose")])];
      case "call":
        return [this.call(part, event)];
      case "result":
        return [this.result(part, event)];
      case "media":
        return [el("p", { class: "faint" }, "(", said(part[1]), ", " + bytes(part[2]) + ", not in this page)")];
      default:
        return [fold("raw", ["block ", said((part[1] && part[1].type) || ""), " "], () => [json(part[1])])];
    }
  }

  call(part, event) {
    const [, , tool, value] = part;
    const answered = this.session.answers.get(part);
    const summary = [
      el("span", { class: "tool-name" }, shown(tool || "tool")),
      " ",
      said(shortArguments(value, 140), "span", "mono faint"),
    ];
    const made = fold("call", summary, () => [...values(value)]);
    const foot = !answered
      ? el("span", { class: "badge warn" }, "never answered")
      : answered !== event.seq
        ? link(answered, "answer", "→ ")
        : null;
    if (foot) made.querySelector("summary").append(" ", foot);
    return made;
  }

  result(part, event) {
    const [, , text, failure] = part;
    const { tool, seq: called } = this.session.calls.get(part) || {};
    const lines = text ? text.split("\n").length : 0;
    const summary = [el("span", { class: "tool-name" }, shown(tool || "result"))];
    if (failure) summary.push(" ", el("span", { class: "badge bad" }, "error"));
    summary.push(" ", said(text.trim() ? firstLine(text, 140) : "(empty)", "span", "mono faint"));
    if (lines > 1) summary.push(" ", el("span", { class: "extent" }, count(lines, "line")));
    if (called && called !== event.seq) summary.push(" ", link(called, "answer", "← "));
    return fold("result" + (failure ? " bad" : ""), summary, () => [longText(text, "pre")], Boolean(failure));
  }

  line(event) {
    const words = describe(event);
    const flips = (event.steps || []).filter((step) => step[0] === "passes" && step[2] && step[3]);
    const mark = event.problem
      ? el("span", { class: "mark bad" }, "!")
      : flips.length
        ? el("span", { class: "mark " + (flips.every((step) => step[3].value) ? "good" : "bad") }, flips.every((step) => step[3].value) ? "✓" : "✗")
        : el("span", { class: "mark" }, checkpointMark(event) || "·");
    const made = [mark, " ", el("span", { class: "type" }, shown(event.name)), " ", said(words, "span", "words")];
    if (event.failed) made.push(" ", el("span", { class: "badge bad" }, "error"));
    if (event.stream) made.push(" ", said("in " + event.stream.join("/"), "span", "faint"));
    const why = word(event.why);
    if (why && !why.startsWith("import of ")) made.push(" ", said(why, "span", "why"));
    const rows = [el("p", { class: "line" }, ...made)];
    if (event.data !== undefined) rows[0] = fold("line", made, () => [json(event.data)]);
    return rows;
  }
}

function passes(event, filter) {
  if (filter === "all") return true;
  if (filter === "error") return event.failed;
  return event.kind === filter;
}

function checkpointMark(event) {
  const step = (event.deltas || []).find((delta) => delta[0] === "checkpoint" && delta[2]);
  return step ? { succeeded: "◆", failed: "◆", in_progress: "◇" }[step[2].status] || "◇" : null;
}

// About how high an event will be, in pixels.
function guess(event) {
  if (!event.messages) return 27;
  let height = 8;
  for (const message of event.messages) {
    height += 30;
    for (const part of message.parts) {
      const text = part[0] === "text" ? part[1] : "";
      height += text ? Math.min(80, 1 + text.length / 95 + text.split("\n", 80).length * 0.8) * 21 : 32;
    }
  }
  return Math.round(height);
}

// Text as it was said; what stands between ``` lines is set as code.
function prose(whole) {
  const text = whole.replace(/^(?:[ \t\r]*\n)+/, "").trimEnd();
  const pieces = text.split(/^```[^\n`]*$/m);
  if (pieces.length < 3) return [longText(text, "div", "prose")];
  return pieces
    .map((piece, number) => [piece.replace(/^\n|\n$/g, ""), number % 2 === 1])
    .filter(([piece]) => piece.trim())
    .map(([piece, code]) => longText(piece, code ? "pre" : "div", code ? "code" : "prose"));
}

// The arguments of a call: a line each, long text as a block below its name.
function values(value) {
  if (typeof value === "string") return [longText(value, "pre")];
  const entries = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : null;
  if (!entries) return [json(value)];
  if (!entries.length) return [el("p", { class: "faint" }, "(no arguments)")];
  return entries.map(([key, one]) => {
    const text = typeof one === "string" ? one : JSON.stringify(one, null, 1);
    const long = text.length > 100 || text.includes("\n");
    return el("div", { class: "argument" + (long ? " long" : "") }, said(key, "span", "key"), long ? longText(text, "pre") : said(text, "span", "mono"));
  });
}

function json(value) {
  return longText(JSON.stringify(value, null, 2), "pre");
}

function notes(event) {
  const where = event.stream.length > 1 ? " in " + event.stream.slice(1).join("/") : "";
  const summary = [el("span", { class: "mark" }, "✎"), " ", el("span", { class: "type" }, shown(event.name)), " ", said(describe(event) + where, "span", "words")];
  return [
    fold("line", summary, () =>
      event.notes.map((one) => el("div", { class: "argument long" }, said(one.id, "span", "key"), longText(one.text === undefined ? (one.lost ? "(lost)" : "(erased)") : one.text, "div", "prose"))),
    ),
  ];
}

function stickyHeight() {
  const player = document.querySelector(".player");
  return getComputedStyle(player).position === "sticky" && !document.body.classList.contains("narrow") ? player.offsetHeight : 0;
}

function footHeight() {
  return document.body.classList.contains("narrow") ? document.querySelector(".player").offsetHeight : 0;
}
