// Above everything: what a person wants to know first, from the same report that the command gives.

const RUNS_SHOWN = 5;
const RUN_CARDS_MAX = 3;
const STATE_NAMES = { succeeded: "good", failed: "bad", died: "bad", open: "open", ended: "" };

function fillHead(root, session) {
  const made = [];
  const title = el("div", { class: "title" }, el("h1", null, session.id === null ? "records" : said(session.id)));
  made.push(title);
  const report = session.report;
  if (report && report.objective) made.push(longText(report.objective.trim(), "p", "goal"));
  const earlier = session.runs.slice(0, -RUNS_SHOWN);
  const layout = "runs" + (session.runs.length > RUN_CARDS_MAX ? " rows" : "");
  const list = (runs) => el("div", { class: layout }, ...runs.map((run) => runCard(run, session)));
  if (earlier.length) made.push(fold("more", [count(earlier.length, "earlier run")], () => [list(earlier)]));
  const overview = el("div", { class: session.runs.length > RUN_CARDS_MAX ? "" : "overview" }, session.runs.length ? list(session.runs.slice(-RUNS_SHOWN)) : null);
  if (report) overview.append(findings(report, session));
  made.push(overview);
  root.replaceChildren(...made);
}

function runCard(run, session) {
  const facts = el("span", { class: "numbers" });
  const add = (number, one, name) => number && facts.append(el("span", { class: name || "", "data-fact": one }, count(number, one)));
  if (run.duration_s) facts.append(el("span", null, duration(run.duration_s)));
  add(run.message_count, "message");
  add(run.tool_call_count, "tool call");
  add(run.tool_error_count, "error", "bad");
  add(run.unanswered_count, "unanswered call", "warn");
  add(run.note_count, "note");
  add(run.unreadable_count, "unreadable event", "warn");
  if (run.features_gained.length) facts.append(el("span", { class: "good", title: run.features_gained.map(shown).join(", ") }, "+" + count(run.features_gained.length, "feature")));
  if (run.features_lost.length) facts.append(el("span", { class: "bad", title: run.features_lost.map(shown).join(", ") }, "−" + count(run.features_lost.length, "feature")));
  const top = el("div", { class: "run-top" }, el("span", { class: "badge " + (STATE_NAMES[run.status] || "") , title: run.evidence ? shown(run.evidence) : null }, run.status), " ", run.run_id === session.id ? null : said(run.run_id, "b"), " ", run.actor ? said(run.actor, "span", "faint") : null);
  const words = run.last_words ? el("p", { class: "last" }, said(firstLine(run.last_words, 220))) : null;
  return el("article", { class: "run", "data-run": run.run_id }, top, el("div", { class: "run-facts" }, facts, el("span", { class: "span" }, link(run.first_seq), "–", link(run.last_seq))), words);
}

// What the report found, a line each.
function findings(report, session) {
  const rows = [];
  const add = (name, title, ...children) => rows.push(el("li", { class: name }, el("span", { class: "what" }, title), el("div", null, ...children)));
  if (report.run_id !== null && session.runs.length > 1) add("", "report of", said(report.run_id, "b"), " ", report.first_seq ? link(report.first_seq) : null);
  if (report.first_error) firstError(report, add, rows);
  report.regressions.slice(0, SOME).forEach((one) => add("bad", "regression", ...regression(one)));
  const further = report.regressions.slice(SOME);
  if (further.length) rows.push(el("li", null, fold("more", [count(further.length, "more regression")], () => further.map((one) => el("div", null, ...regression(one))))));
  if (report.unanswered.length) add("warn", "no answer", ...some(report.unanswered, (one) => el("span", null, link(one.seq), " ", shown(one.tool))));
  if (report.unreadable.length) add("warn", "without data", ...some(report.unreadable, (one) => el("span", null, link(one.seq), " ", one.state)));
  if (report.gaps.length) add("", "longest waits", ...some(report.gaps, (one) => el("span", null, duration(one.seconds), " before ", link(one.before_seq))));
  if (report.notes.length) add("", "notes", ...some(report.notes, (one) => el("span", null, link(one.seq), " ", said(firstLine(one.words || one.ids.join(", "), 60)))));
  const agents = report.sub_sessions.map((id) => DATA.sessions.find((one) => one.id === id)).filter((one) => one && one.events.length);
  if (agents.length) add("", "sub-agents", ...some(agents, (one) => el("span", null, link(one.events[0].seq), " ", said(one.id))));
  if (report.flips.length) rows.push(el("li", null, fold("more", [count(report.flips.length, "flip") + " of features: which, who, why"], () => [flipTable(report.flips)])));
  const total = report.bytes.reduce((sum, one) => sum + one.payload_bytes, 0);
  if (report.bytes.length) rows.push(el("li", null, fold("more", ["where the bytes are: " + bytes(total) + " in " + count(report.event_count, "event")], () => [byteTable(report.bytes)])));
  return el("ul", { class: "findings" }, ...rows);
}

function regression(one) {
  const made = [said(one.feature_id, "b")];
  if (one.passed_seq) made.push(" passed at ", link(one.passed_seq));
  made.push(" lost at ", link(one.lost_seq));
  if (one.again_seq) made.push(" again at ", link(one.again_seq));
  return made;
}

function firstError(report, add, rows) {
  const error = report.first_error;
  const tool = [el("span", { class: "tool-name" }, shown(error.tool || "tool")), " ", said(firstLine(error.arguments, 100), "span", "mono faint")];
  const all = report.tool_error_count > 1 ? el("span", { class: "faint" }, " · " + count(report.tool_error_count, "error") + " in all") : null;
  add("bad", "first error", link(error.seq), " ", ...tool, all, el("div", { class: "mono bad" }, said(firstLine(error.words, 240))));
  const first = report.errors.indexOf(error.seq);
  const further = report.errors.filter((_, number) => number !== first);
  const links = () => further.flatMap((seq) => [link(seq), " "]);
  if (further.length) rows.push(el("li", null, fold("more", [count(further.length, "further error")], () => [el("div", null, ...links())])));
}

function flipTable(flips) {
  const rows = flips.map((one) => [link(one.seq), said(one.feature_id), check(one.passes), said(one.actor || ""), said(one.run_id || ""), said(one.reason || "")]);
  return el("table", { class: "flips" }, ...rows.map((row) => el("tr", null, ...row.map((cell) => el("td", null, cell)))));
}

function byteTable(shares) {
  const rows = shares.map((one) => [said(one.type), count(one.event_count, "event"), bytes(one.payload_bytes)]);
  return el("table", { class: "bytes" }, ...rows.map((row) => el("tr", null, ...row.map((cell) => el("td", null, cell)))));
}

const SOME = 5;

function some(values, show) {
  const made = [];
  values.slice(0, SOME).forEach((one, number) => made.push(number ? ", " : "", show(one)));
  if (values.length > SOME) made.push(" and " + (values.length - SOME) + " more");
  return made;
}
