// Beside the events: what the current one changed, and the state after it.

const ENTRIES_SHOWN = 5;
const FIELD_WORDS = {
  current_objective: "objective",
  active_branch: "branch",
  harness_version: "harness",
  last_known_good_commit: "good commit",
  init_plan: "init plan",
};

function fillPanel(root, session, index) {
  const event = session.events[index];
  if (!event) {
    root.replaceChildren(el("p", { class: "note" }, "no event"));
    return;
  }
  const state = session.go(index);
  const opened = new Set([...root.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
  root.replaceChildren(about(event), changed(event), after(event, session, state));
  root.querySelectorAll("details[data-key]").forEach((one) => {
    if (opened.has(one.dataset.key)) one.open = true;
  });
}

function about(event) {
  const facts = el("dl", { class: "facts" });
  const add = (name, value) => value && facts.append(el("dt", null, name), el("dd", null, value));
  add("at", moment(event.at));
  if (event.wrote !== undefined) add("written", moment(event.wrote));
  add("by", event.by === undefined ? null : said(word(event.by)));
  add("run", event.run === undefined ? null : said(word(event.run)));
  add("why", event.why === undefined ? null : said(word(event.why)));
  return el("section", { class: "about" }, el("h2", null, link(event.seq), " ", el("span", { class: "type" }, shown(event.name))), facts);
}

function changed(event) {
  const rows = event.steps.map(stepRow).filter(Boolean);
  if (event.notes) rows.push(el("li", null, "put ", count(event.notes.length, "note")));
  const made = el("section", { class: "changed" }, el("h3", null, "Changed"));
  if (rows.length) made.append(el("ul", null, ...rows));
  else if (event.problem) made.append(el("p", { class: "bad" }, "unknown: the event is damaged"));
  else if (event.erased) made.append(el("p", { class: event.lost ? "bad" : "faint" }, whyGone(event)));
  else made.append(el("p", { class: "faint" }, "nothing of the state"));
  return made;
}

function stepRow([part, name, before, now]) {
  const arrow = " → ";
  switch (part) {
    case "transcript":
      return now >= before
        ? el("li", null, "transcript ", el("b", null, "+" + (now - before)), ", now " + count(now, "message"))
        : el("li", { class: "bad" }, "transcript " + count(before, "message"), arrow, el("b", null, String(now)));
    case "passes":
      if (!before) return now && now.value ? el("li", null, "feature ", said(name, "b"), " begins as passing ", check(true)) : null;
      if (!now) return null;
      return el("li", { class: now.value ? "good" : "bad" }, said(name, "b"), " ", check(before.value), arrow, check(now.value));
    case "feature":
      return el("li", null, "feature ", said(name, "b"), before ? (now ? " reworded" : " removed") : " added");
    case "order":
      return null;
    case "progress":
      return now ? el("li", null, "progress ", said(now.value.summary, "span", "quote")) : el("li", null, "progress entry " + name + " removed");
    case "checkpoint":
      return now ? el("li", null, "checkpoint ", checkpoint(now.value)) : el("li", null, "checkpoint " + name + " removed");
    case "origin":
      return el("li", null, "forked from ", said(now.value.session_id, "b"), " at #" + now.value.seq);
    default:
      return el("li", null, FIELD_WORDS[name] || name, " ", before ? el("del", null, value(before.value)) : "", before && now ? arrow : "", now ? el("ins", null, value(now.value)) : before ? " removed" : "");
  }
}

function value(one) {
  const text = typeof one === "string" ? one : JSON.stringify(one);
  return said(text.length > 300 ? text.slice(0, 299) + "…" : text);
}

function check(passes) {
  return el("span", { class: passes ? "good" : "bad" }, passes ? "✓" : "✗");
}

function checkpoint(one) {
  const names = { succeeded: "good", failed: "bad" };
  return el("span", null, said(one.run_id, "b"), " ", el("span", { class: names[one.status] || "" }, said(statusOf(one))), one.note ? el("span", null, ": ", said(one.note)) : "");
}

function after(event, session, state) {
  const made = el("section", { class: "state" }, el("h3", null, "State after " + "#" + event.seq));
  const lost = session.lost(event.index);
  if (lost.length) made.append(el("p", { class: "warn" }, "without what is not there any more: ", ...some(lost, (seq) => link(seq))));
  made.append(...manifest(event, state), ...features(event, state), ...checkpoints(event, state), ...progress(event, state));
  made.append(el("p", { class: "sum" }, el("b", null, String(state.messages)), " " + (state.messages === 1 ? "message" : "messages") + " in the transcript"));
  return made;
}

// A value of the state with the event that set it; one that the current event set stands out.
function row(tag, entry, event, ...words) {
  return el(tag, { class: "row" + (entry.seq === event.seq ? " fresh" : "") }, el("div", null, ...words), link(entry.seq, "since"));
}

function manifest(event, state) {
  if (!state.manifest.size) return [el("p", { class: "faint" }, "no manifest")];
  const facts = el("dl", { class: "facts" });
  const objective = state.manifest.get("current_objective");
  const made = [];
  if (objective) made.push(el("div", { class: "objective" }, longText(String(objective.value).trim(), "p", "")));
  for (const [name, entry] of state.manifest) {
    if (name === "current_objective" || name === "session_id" || name === "metadata") continue;
    if (name === "schema_version" && entry.value === 1) continue;
    facts.append(el("dt", null, shown(FIELD_WORDS[name] || name)), row("dd", entry, event, value(entry.value)));
  }
  made.push(facts);
  const metadata = state.manifest.get("metadata");
  if (metadata && Object.keys(metadata.value).length) made.push(keyed("metadata", fold("more", ["metadata"], () => [json(metadata.value)])));
  return made;
}

function features(event, state) {
  if (!state.order.length) return [];
  const rows = state.order.map((name) => {
    const definition = (state.feature.get(name) || { value: {} }).value;
    const passes = state.passes.get(name) || { value: false, seq: event.seq };
    const words = [check(passes.value), " ", said(name, "b"), " ", said(definition.description || "", "span", "faint")];
    const steps = definition.steps || [];
    if (!steps.length) return row("li", passes, event, ...words);
    const list = () => [el("ol", { class: "todo" }, ...steps.map((step) => said(step, "li")))];
    return row("li", passes, event, keyed("feature " + name, fold("more", words, list)));
  });
  const sum = el("h4", null, "Features ", el("span", { class: "count" }, state.passingCount + " of " + state.order.length + " pass"));
  return [sum, el("meter", { min: 0, max: state.order.length, value: state.passingCount, "aria-label": "features that pass" }), el("ul", { class: "features" }, ...rows)];
}

function checkpoints(event, state) {
  if (!state.checkpoint.size) return [];
  const newest = new Map();
  for (const entry of state.checkpoint.values()) {
    newest.delete(entry.value.run_id);
    newest.set(entry.value.run_id, entry);
  }
  const rows = [...newest.values()].slice(-ENTRIES_SHOWN).reverse().map((entry) => row("li", entry, event, checkpoint(entry.value)));
  return [el("h4", null, "Runs ", el("span", { class: "count" }, String(newest.size))), el("ul", null, ...rows)];
}

function progress(event, state) {
  if (!state.progress.size) return [];
  const entries = [...state.progress.values()];
  const show = (entry) => row("li", entry, event, said(entry.value.summary));
  const made = [el("h4", null, "Progress ", el("span", { class: "count" }, String(entries.length))), el("ul", null, ...entries.slice(-ENTRIES_SHOWN).reverse().map(show))];
  const earlier = entries.slice(0, -ENTRIES_SHOWN);
  if (earlier.length) made.push(keyed("earlier", fold("more", [count(earlier.length, "earlier entr").replace(/entrs$/, "entries").replace(/entr$/, "entry")], () => [el("ul", null, ...earlier.reverse().map(show))])));
  return made;
}

function keyed(key, details) {
  details.dataset.key = key;
  return details;
}
