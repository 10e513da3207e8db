// Searching all events of a session, and marking what was found where it is shown.

const HITS_SHOWN = 200;
const EXCERPT_BEFORE = 40;
const EXCERPT_CHARACTERS = 150;

class Search {
  constructor(session) {
    this.session = session;
    this.texts = null;
    this.query = "";
    this.hits = [];
    this.at = -1;
  }

  // All events that say something, by index; everything is compared in lower case.
  find(query) {
    this.query = query.trim().toLowerCase();
    this.at = -1;
    if (!this.query) {
      this.hits = [];
      return this.hits;
    }
    if (!this.texts) this.texts = this.session.events.map((event) => textOf(event).toLowerCase());
    this.hits = [];
    this.texts.forEach((text, index) => text.includes(this.query) && this.hits.push(index));
    return this.hits;
  }

  // The next hit after an event in a direction, or from the other end; null if there is none.
  beside(index, direction) {
    if (!this.hits.length) return null;
    const ordered = direction > 0 ? this.hits : [...this.hits].reverse();
    const found = ordered.findIndex((one) => (direction > 0 ? one > index : one < index));
    const hit = ordered[found < 0 ? 0 : found];
    this.at = this.hits.indexOf(hit);
    return hit;
  }

  excerpt(index) {
    const text = textOf(this.session.events[index]);
    const place = text.toLowerCase().indexOf(this.query);
    const line = text.lastIndexOf("\n", place) + 1;
    const from = Math.max(line, place - EXCERPT_BEFORE);
    const flat = (part) => shown(part.replace(/\s+/g, " "));
    const end = place + this.query.length;
    return [
      (from > line ? "…" : "") + flat(text.slice(from, place)),
      el("mark", null, flat(text.slice(place, end))),
      flat(text.slice(end, Math.min(from + EXCERPT_CHARACTERS, Math.max(end, text.lastIndexOf(META))))),
    ];
  }
}

const META = "\n\n";

// Everything an event says, a line each; behind a gap who wrote it, where and why.
function textOf(event) {
  const lines = [];
  for (const message of event.messages || []) {
    if (message.name) lines.push(message.name);
    for (const part of message.parts) for (const one of part.slice(1)) gather(one, lines);
  }
  for (const delta of event.deltas || []) for (const one of delta.slice(1)) gather(one, lines);
  for (const note of event.notes || []) gather(note, lines);
  gather(event.data, lines);
  if (event.problem) lines.push(event.problem);
  const meta = [];
  if (event.stream) meta.push(event.stream.join("/"));
  for (const key of ["by", "run", "why"]) if (event[key] !== undefined) meta.push(word(event[key]));
  meta.push(event.name, "#" + event.seq);
  return lines.join("\n") + META + meta.join(" ");
}

function gather(value, lines) {
  if (typeof value === "string") lines.push(value);
  else if (typeof value === "number") lines.push(String(value));
  else if (Array.isArray(value)) value.forEach((one) => gather(one, lines));
  else if (value && typeof value === "object") {
    for (const [key, one] of Object.entries(value)) {
      lines.push(key);
      gather(one, lines);
    }
  }
}

// Marks a text below a node without changing the document, where the browser can.
function highlight(root, query) {
  if (!window.Highlight || !CSS.highlights) return;
  CSS.highlights.delete("hit");
  if (!query) return;
  const ranges = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && ranges.length < 5000) {
    const text = walker.currentNode.data.toLowerCase();
    for (let at = text.indexOf(query); at >= 0 && ranges.length < 5000; at = text.indexOf(query, at + query.length)) {
      const range = new Range();
      // Lower case can be longer than what it comes from; then nothing beyond the end is marked.
      range.setStart(walker.currentNode, Math.min(at, walker.currentNode.length));
      range.setEnd(walker.currentNode, Math.min(at + query.length, walker.currentNode.length));
      ranges.push(range);
    }
  }
  CSS.highlights.set("hit", new Highlight(...ranges));
}

// Opens what is folded in an event where the text is in it.
function reveal(node, query) {
  for (const details of node.querySelectorAll("details")) {
    if (details.open) continue;
    const summary = details.querySelector("summary").textContent.toLowerCase();
    if (details.fill) details.fill();
    details.querySelectorAll(".cut").forEach((one) => one.showAll && one.showAll());
    const within = details.textContent.toLowerCase();
    if (within.split(query).length > summary.split(query).length) details.open = true;
  }
  node.querySelectorAll(".cut").forEach((one) => one.showAll && !one.textContent.toLowerCase().includes(query) && one.showAll());
}
