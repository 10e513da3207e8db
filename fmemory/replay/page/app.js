// The page: one session at a time, one current event, and everything that moves it.

const byId = (id) => document.getElementById(id);
const narrowness = matchMedia("(max-width: 820px)");
const FILTERS = [
  ["all", "all"],
  ["message", "messages"],
  ["change", "changes"],
  ["error", "errors"],
  ["other", "other events"],
];
const KEYS = [
  ["j  k  →  ←", "next, previous event"],
  ["Page keys", "ten events on, back"],
  ["Home  End", "first, last event"],
  ["e  E", "next, previous error"],
  ["f  F", "next, previous change of a feature"],
  ["/", "search"],
  ["n  N", "next, previous hit"],
  ["Enter", "open or fold the event"],
  ["+  −  0", "zoom the timeline in, out, whole"],
  ["x", "timeline by time, or evenly by event"],
  ["s", "state beside the events"],
  ["t", "light or dark"],
  ["Esc", "close"],
];
const HASH_WAIT_MS = 250;

// What the colours of the timeline mean.
function legend() {
  const bars = [["user", "user"], ["assistant", "assistant"], ["tool", "tool"], ["system", "system"], ["change", "change of the state"], ["other", "other events"], ["bad", "a tool call failed"], ["hit", "found by search"]];
  const parts = bars.map(([color, words]) => el("span", null, el("i", { class: "key-" + color }), words));
  return el("p", { class: "legend" }, ...parts, el("span", null, "▲ ▼ a feature passes, or not any more"), el("span", null, "◆ checkpoint of a run"));
}

class App {
  constructor() {
    this.sessions = new Map();
    this.timeline = new Timeline(byId("timeline"), byId("tip"), (index) => this.go(index));
    this.slider = byId("slider");
    this.listen();
    this.layOut();
  }

  // Opens a session at an event, its number in the log; without one where it is best to begin.
  open(number, seq) {
    this.number = number;
    if (!this.sessions.has(number)) this.sessions.set(number, new Session(DATA.sessions[number]));
    this.session = this.sessions.get(number);
    this.search = new Search(this.session);
    byId("session").value = String(number);
    document.title = (this.session.id === null ? "records" : shown(this.session.id)) + " – fmemory replay";
    const events = this.session.events;
    this.slider.max = String(Math.max(0, events.length - 1));
    this.slider.disabled = !events.length;
    fillHead(byId("head"), this.session);
    this.list = new List(this.session, byId("list"), (index) => this.go(index));
    this.list.onFilled = () => this.mark();
    this.current = -1;
    this.filter("all");
    this.timeline.open(this.session);
    byId("axis").textContent = this.timeline.byTime ? "by time" : "by event";
    this.find(byId("query").value);
    const index = seq === undefined ? -1 : this.session.at.get(seq);
    // Nobody has chosen an event: the state is the newest, and the list begins at its beginning.
    this.fresh = !(index >= 0);
    if (!events.length) fillPanel(byId("panel"), this.session, -1);
    else if (this.fresh) this.go(events.length - 1, { scroll: false, quiet: true });
    else this.go(index);
    if (this.fresh) window.scrollTo(0, 0);
  }

  // Makes an event the current one.
  go(index, { scroll = true, quiet = false } = {}) {
    const events = this.session.events;
    if (index === null || index === undefined || index < 0 || index >= events.length) return;
    this.current = index;
    this.slider.value = String(index);
    const event = events[index];
    const words = "#" + event.seq + " · " + (index + 1) + " of " + events.length;
    byId("place").textContent = this.narrow ? "#" + event.seq : words;
    this.slider.setAttribute("aria-valuetext", words + ", " + event.name);
    this.timeline.set(index);
    if (scroll && this.list.places.get(index) === undefined) this.filter("all");
    this.fresh = quiet;
    if (!quiet) this.list.mark(index, scroll);
    if (!this.drawing) {
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        fillPanel(byId("panel"), this.session, this.current);
      });
    }
    if (!quiet) this.nameLater(event.seq);
  }

  // Browsers refuse hundreds of changes of the address a minute: it follows when the slider rests.
  nameLater(seq) {
    clearTimeout(this.naming);
    // An address that has changed meanwhile names where somebody wants to go: `follow` is on its way.
    const before = location.hash;
    this.naming = setTimeout(() => {
      if (location.hash === before && before !== "#" + seq) history.replaceState(null, "", "#" + seq);
    }, HASH_WAIT_MS);
  }

  // Goes to the event that the address names.
  follow(first) {
    const named = /^#([1-9][0-9]*)$/.exec(location.hash);
    if (!named) return false;
    const seq = Number(named[1]);
    const order = DATA.sessions.map((_, number) => number);
    if (this.number !== undefined) order.sort((one) => (one === this.number ? -1 : 0));
    for (const number of order) {
      if (!DATA.sessions[number].events.some((event) => event.seq === seq)) continue;
      if (number !== this.number) this.open(number, seq);
      else this.go(this.session.at.get(seq));
      this.say("");
      return true;
    }
    if (!first) this.say("event #" + seq + " is not in this page");
    else this.missing = seq;
    return false;
  }

  say(words) {
    byId("said").textContent = words;
    byId("said").hidden = !words;
  }

  filter(name) {
    if (this.list.filter !== name || !this.list.blocks.length) this.list.lay(name);
    const kinds = FILTERS.map(([kind, label]) => {
      const amount = this.session.events.filter((event) => passes(event, kind)).length;
      const button = el("button", { type: "button", "aria-pressed": String(kind === name), "data-filter": kind, disabled: !amount && kind !== "all" }, label, " ", el("span", { class: "count" }, amount.toLocaleString("en")));
      button.addEventListener("click", () => {
        this.filter(kind);
        if (this.list.places.has(this.current)) this.list.mark(this.current, true);
        else this.go(this.list.beside(this.current, -1) ?? this.list.beside(this.current, 1));
      });
      return button;
    });
    byId("filters").replaceChildren(...kinds);
  }

  // Where steps and searches go on from.
  origin(direction) {
    return this.fresh && direction > 0 ? -1 : this.current;
  }

  step(direction, far = 1) {
    let index = this.origin(direction);
    for (let one = 0; one < far; one++) {
      const next = this.list.beside(index, direction);
      if (next === null) break;
      index = next;
    }
    if (index !== this.current || this.fresh) this.go(index);
  }

  // Shows the stretch of a run, from its first event on.
  focus(run) {
    const first = this.session.at.get(run.first_seq);
    const final = this.session.at.get(run.last_seq);
    if (first === undefined || final === undefined) return;
    this.go(first);
    if (this.session.runs.length > 1) this.timeline.frame(first, final);
  }

  // The next event of some kind in a direction.
  seek(direction, wanted) {
    const events = this.session.events;
    for (let index = this.origin(direction) + direction; index >= 0 && index < events.length; index += direction) {
      if (wanted(events[index], index)) return this.go(index);
    }
    return undefined;
  }

  find(query) {
    if (!this.session) return;
    const hits = this.search.find(query);
    this.timeline.hits = hits.length ? new Set(hits) : null;
    this.timeline.draw();
    this.count();
    this.mark();
    const rows = hits.slice(0, HITS_SHOWN).map((index) => {
      const event = this.session.events[index];
      const row = el("button", { type: "button", tabindex: -1 }, el("span", { class: "seq" }, "#" + event.seq), " ", el("span", { class: "said", dir: "auto" }, ...this.search.excerpt(index)));
      row.addEventListener("click", () => this.hit(index));
      return el("li", null, row);
    });
    if (hits.length > HITS_SHOWN) rows.push(el("li", { class: "faint" }, "and " + count(hits.length - HITS_SHOWN, "more event") + ": ↓ goes through all"));
    byId("hits").replaceChildren(...rows);
    byId("hits").hidden = !rows.length || document.activeElement !== byId("query");
  }

  count() {
    const { hits, query, at } = this.search;
    byId("hit-count").textContent = !query ? "" : !hits.length ? "none" : (at >= 0 ? at + 1 + " of " : "") + hits.length.toLocaleString("en");
    for (const id of ["hit-prev", "hit-next"]) byId(id).disabled = !hits.length;
  }

  mark() {
    if (this.marking) return;
    this.marking = requestAnimationFrame(() => {
      this.marking = 0;
      highlight(byId("list"), this.search.query);
    });
  }

  hit(index) {
    if (index === null) return;
    this.search.at = this.search.hits.indexOf(index);
    this.go(index);
    const node = this.list.node(index);
    if (node) reveal(node, this.search.query);
    this.list.mark(index, true);
    this.count();
    this.mark();
    byId("hits").hidden = true;
  }

  nextHit(direction) {
    this.hit(this.search.beside(this.origin(direction), direction));
  }

  layOut() {
    if (this.narrow !== narrowness.matches) {
      this.narrow = narrowness.matches;
      document.body.classList.toggle("narrow", this.narrow);
      this.panel(!this.narrow);
    }
    const player = document.querySelector(".player");
    document.documentElement.style.setProperty("--player", player.offsetHeight + "px");
    this.timeline.draw();
  }

  panel(open) {
    byId("panel-open").setAttribute("aria-expanded", String(open));
    document.body.classList.toggle("panel-open", open);
    this.timeline.draw();
  }

  theme() {
    const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("fmemory-theme", name);
    } catch {
      // without storage it holds until the page is closed
    }
    setTheme(name);
    this.timeline.draw();
  }

  help() {
    const rows = KEYS.map(([keys, words]) => [el("dt", null, ...keys.split("  ").flatMap((key, number) => [number ? " " : "", el("kbd", null, key)])), el("dd", null, words)]);
    const close = el("button", { type: "button" }, "close");
    close.addEventListener("click", () => byId("help").close());
    byId("help").replaceChildren(el("h2", null, "Keys"), el("dl", null, ...rows.flat()), el("p", { class: "faint" }, "Ctrl and the wheel zoom the timeline, Shift and the wheel move it."), legend(), close);
    byId("help").showModal();
  }

  listen() {
    const on = (id, act) => byId(id).addEventListener("click", act);
    on("prev", () => this.step(-1));
    on("next", () => this.step(1));
    on("zoom-in", () => this.timeline.zoom(ZOOM_STEP));
    on("zoom-out", () => this.timeline.zoom(1 / ZOOM_STEP));
    on("zoom-fit", () => this.timeline.fit());
    on("axis", () => this.axis());
    on("theme", () => this.theme());
    on("help-open", () => this.help());
    on("hit-next", () => this.nextHit(1));
    on("hit-prev", () => this.nextHit(-1));
    on("panel-open", () => this.panel(!document.body.classList.contains("panel-open")));
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    byId("session").addEventListener("change", (event) => this.open(Number(event.target.value)));
    window.addEventListener("hashchange", () => this.follow());
    narrowness.addEventListener("change", () => this.layOut());
    darkness.addEventListener("change", () => this.timeline.draw());
    new ResizeObserver(() => this.layOut()).observe(document.querySelector(".player"));
    byId("list").addEventListener("click", (press) => this.press(press));
    document.addEventListener("click", (press) => {
      const to = press.target.closest("a.ref");
      // The same address again makes no hashchange, and yet means: go there.
      if (to && to.hash === location.hash) this.follow();
      if (!press.target.closest(".search")) byId("hits").hidden = true;
    });
    document.addEventListener("keydown", (press) => this.key(press));
    this.listenToSearch();
  }

  listenToSearch() {
    const query = byId("query");
    query.addEventListener("input", () => {
      clearTimeout(this.finding);
      this.finding = setTimeout(() => this.find(query.value), 120);
    });
    query.addEventListener("focus", () => (byId("hits").hidden = !byId("hits").children.length));
    query.addEventListener("keydown", (press) => {
      if (press.key === "Enter") {
        clearTimeout(this.finding);
        if (query.value.trim().toLowerCase() !== this.search.query) this.find(query.value);
        this.nextHit(press.shiftKey ? -1 : 1);
        // As in a pager: from here on keys are commands, and n is the next hit.
        query.blur();
      } else if (press.key === "Escape") {
        if (byId("hits").hidden) query.value = "";
        this.find(query.value);
        query.blur();
        byId("hits").hidden = true;
      } else return;
      press.preventDefault();
      press.stopPropagation();
    });
  }

  // A press on an event makes it the current one; one on a link, fold or selected text does not.
  press(press) {
    const node = press.target.closest(".event");
    if (!node || press.target.closest("a, button, summary") || String(getSelection())) return;
    this.go(Number(node.dataset.index), { scroll: false });
  }

  axis() {
    this.timeline.setAxis(!this.timeline.byTime);
    byId("axis").textContent = this.timeline.byTime ? "by time" : "by event";
  }

  key(press) {
    if (!this.session || press.ctrlKey || press.metaKey || press.altKey || byId("help").open) return;
    const target = press.target;
    if (target.closest("input[type=search], select")) return;
    const isSlider = target === this.slider;
    const act = this.actions(press)[press.key];
    if (!act) return;
    if (isSlider && /^(Arrow|Page|Home|End)/.test(press.key)) return;
    if (press.key === "Enter" && target.closest("a, button, summary")) return;
    press.preventDefault();
    act();
  }

  actions() {
    const flips = (event) => event.steps && event.steps.some((step) => step[0] === "passes" && step[2] && step[3]);
    return {
      j: () => this.step(1),
      k: () => this.step(-1),
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      PageDown: () => this.step(1, 10),
      PageUp: () => this.step(-1, 10),
      Home: () => this.go(this.list.shown[0]),
      End: () => this.go(this.list.shown[this.list.shown.length - 1]),
      e: () => this.seek(1, (event) => event.failed),
      E: () => this.seek(-1, (event) => event.failed),
      f: () => this.seek(1, flips),
      F: () => this.seek(-1, flips),
      "/": () => byId("query").select(),
      n: () => this.nextHit(1),
      N: () => this.nextHit(-1),
      Enter: () => this.toggle(),
      "+": () => this.timeline.zoom(ZOOM_STEP),
      "=": () => this.timeline.zoom(ZOOM_STEP),
      "-": () => this.timeline.zoom(1 / ZOOM_STEP),
      0: () => this.timeline.fit(),
      x: () => this.axis(),
      s: () => this.panel(!document.body.classList.contains("panel-open")),
      t: () => this.theme(),
      "?": () => this.help(),
      Escape: () => this.narrow && this.panel(false),
    };
  }

  // Opens all folds of the current event, or folds them.
  toggle() {
    const node = this.list.node(this.current);
    if (!node) return;
    const folds = [...node.querySelectorAll("details")];
    const open = folds.some((one) => !one.open);
    folds.forEach((one) => {
      if (open && one.fill) one.fill();
      one.open = open;
    });
    this.mark();
  }
}

function begin() {
  const choice = byId("session");
  DATA.sessions.forEach((one, number) => choice.append(el("option", { value: number }, one.id === null ? "records without a session" : shown(one.id))));
  choice.hidden = DATA.sessions.length < 2;
  const app = new App();
  if (!DATA.sessions.length) {
    byId("list").append(el("p", { class: "note" }, "There is no session in this store."));
  } else if (!app.follow(true)) {
    app.open(0);
    if (app.missing) app.say("event #" + app.missing + " is not in this page");
    const focus = DATA.focus && app.session.runs.find((run) => run.run_id === DATA.focus);
    if (focus) app.focus(focus);
  }
  // The time at which all of it is on the screen, for whoever wants to know whether it is.
  requestAnimationFrame(() => setTimeout(() => (document.documentElement.dataset.ready = String(Math.round(performance.now())))));
}

begin();
