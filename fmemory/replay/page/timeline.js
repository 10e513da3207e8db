// The timeline: runs with their checkpoints, how many features pass, and every event; on a canvas.

const LANE_GAP = 7;
const RUN_LANES_MAX = 6;
const AXIS_HEIGHT = 16;
const ZOOM_STEP = 1.6;

class Timeline {
  constructor(canvas, tip, onPick) {
    this.canvas = canvas;
    this.tip = tip;
    this.onPick = onPick;
    this.pointers = new Map();
    this.hits = null;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }

  // Shows a session whole, along the clock unless long waits would crowd everything else.
  open(session) {
    this.session = session;
    const times = session.events.map((event) => event.at);
    this.low = Math.min(...bounds(times));
    this.high = Math.max(...bounds(times));
    this.byTime = this.high > this.low && !isCrowded(times);
    this.lanes = lanesOf(session);
    this.counts = session.total.some((total) => total > 0);
    this.fit();
  }

  setAxis(byTime) {
    this.byTime = byTime;
    this.fit();
  }

  fit() {
    this.from = 0;
    this.to = 1;
    this.draw();
  }

  // Zooms by a factor about a place on the canvas, 0 to 1; by itself about the current event.
  zoom(factor, about) {
    const here = about === undefined ? Math.min(1, Math.max(0, (this.place(this.current || 0) - this.from) / (this.to - this.from))) : about;
    const least = Math.min(1, 4 / Math.max(4, this.session.events.length));
    const width = Math.min(1, Math.max(this.byTime ? least / 50 : least, (this.to - this.from) / factor));
    const fixed = this.from + here * (this.to - this.from);
    this.look(fixed - here * width, width);
  }

  look(from, width) {
    this.from = Math.min(1 - width, Math.max(0, from));
    this.to = this.from + width;
    this.draw();
  }

  // Shows the stretch between two events.
  frame(first, last) {
    const low = this.place(first);
    const high = this.place(last);
    const width = Math.min(1, Math.max(0.01, (high - low) * 1.1));
    this.look(low - (width - (high - low)) / 2, width);
  }

  // Where an event is between the first and the last, 0 to 1.
  place(index) {
    const events = this.session.events;
    if (!events.length) return 0;
    if (this.byTime) return (events[index].at - this.low) / (this.high - this.low || 1);
    return events.length < 2 ? 0.5 : index / (events.length - 1);
  }

  placeOfTime(ms) {
    return Math.min(1, Math.max(0, (ms - this.low) / (this.high - this.low || 1)));
  }

  x(place) {
    return this.left + ((place - this.from) / (this.to - this.from)) * this.inner;
  }

  set(index) {
    this.current = index;
    const place = this.place(index);
    const width = this.to - this.from;
    if (place < this.from || place > this.to) this.look(place - width / 2, width);
    else this.draw();
  }

  draw() {
    if (this.waiting || !this.session) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  paint() {
    const narrow = document.body.classList.contains("narrow");
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const runHeight = this.lanes.count > 3 || narrow ? 7 : 14;
    const runsHeight = this.lanes.count ? this.lanes.count * (runHeight + 3) : 0;
    const featureHeight = this.counts ? (narrow ? 14 : 26) : 0;
    const eventHeight = narrow ? 26 : 40;
    const height = runsHeight + (featureHeight ? featureHeight + LANE_GAP : 0) + eventHeight + LANE_GAP + AXIS_HEIGHT + 4;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = height + "px";
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.left = narrow ? 8 : 72;
    this.inner = width - this.left - 12;
    this.canvas.dataset.from = this.from.toFixed(4);
    this.canvas.dataset.to = this.to.toFixed(4);
    const ink = this.canvas.getContext("2d");
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, width, height);
    const colors = paletteOf();
    let top = 2;
    this.paintCursor(ink, height, colors);
    ink.save();
    ink.beginPath();
    ink.rect(this.left - 6, 0, this.inner + 14, height);
    ink.clip();
    this.paintRuns(ink, top, runHeight, colors);
    top += runsHeight + (runsHeight ? LANE_GAP - 3 : 0);
    const features = top;
    if (featureHeight) {
      this.paintFeatures(ink, top, featureHeight, colors);
      top += featureHeight + LANE_GAP;
    }
    this.paintEvents(ink, top, eventHeight, colors);
    this.paintAxis(ink, top + eventHeight + 4, colors);
    ink.restore();
    if (!narrow) {
      ink.fillStyle = colors.faint;
      ink.font = "11px system-ui, sans-serif";
      ink.textBaseline = "middle";
      if (runsHeight) ink.fillText("runs", 4, 2 + runsHeight / 2 - 1);
      if (featureHeight) ink.fillText("features", 4, features + featureHeight / 2);
      ink.fillText("events", 4, top + eventHeight / 2);
    }
  }

  paintRuns(ink, top, height, colors) {
    this.lanes.bars.forEach((bar) => {
      const [first, final] = this.byTime ? [this.placeOfTime(bar.from), this.placeOfTime(bar.until)] : [this.place(bar.first), this.place(bar.final)];
      const from = this.x(first);
      const until = Math.max(from + 3, this.x(final));
      const y = top + bar.lane * (height + 3);
      const color = colors[bar.run.status] || colors.open;
      ink.globalAlpha = 0.28;
      ink.fillStyle = color;
      ink.beginPath();
      ink.roundRect(from, y, until - from, height, 3);
      ink.fill();
      ink.globalAlpha = 1;
      ink.strokeStyle = color;
      ink.lineWidth = 1;
      ink.setLineDash(bar.run.status === "open" || bar.run.status === "died" ? [3, 3] : []);
      ink.stroke();
      ink.setLineDash([]);
      if (height > 10 && until - from > 60) {
        ink.save();
        ink.beginPath();
        ink.rect(from, y, until - from - 4, height);
        ink.clip();
        ink.fillStyle = colors.ink;
        ink.font = "11px system-ui, sans-serif";
        ink.textBaseline = "middle";
        ink.fillText(shown(bar.run.run_id) + "  " + bar.run.status, Math.max(from, this.left) + 6, y + height / 2 + 0.5);
        ink.restore();
      }
    });
    for (const one of this.lanes.checkpoints) {
      const x = this.x(this.place(one.index));
      const y = top + one.lane * (height + 3) + height / 2;
      const half = Math.min(5, height / 2);
      ink.fillStyle = colors[one.status] || colors.open;
      ink.strokeStyle = colors.paper;
      ink.beginPath();
      ink.moveTo(x, y - half);
      ink.lineTo(x + half, y);
      ink.lineTo(x, y + half);
      ink.lineTo(x - half, y);
      ink.closePath();
      ink.fill();
      ink.stroke();
    }
  }

  // A step for every change of how many features pass, of how many there are.
  paintFeatures(ink, top, height, colors) {
    const { passing, total, events, flips } = this.session;
    const most = Math.max(...bounds(total), 1);
    const inner = height - 7;
    const step = (values, color, alpha) => {
      ink.beginPath();
      ink.moveTo(this.x(0), top + height);
      let before = 0;
      let last = 0;
      for (let index = 0; index < events.length; index++) {
        if (values[index] === before) continue;
        last = this.x(this.place(index));
        ink.lineTo(last, top + height - (before / most) * inner);
        ink.lineTo(last, top + height - (values[index] / most) * inner);
        before = values[index];
      }
      ink.lineTo(this.x(1), top + height - (before / most) * inner);
      ink.lineTo(this.x(1), top + height);
      ink.closePath();
      ink.globalAlpha = alpha;
      ink.fillStyle = color;
      ink.fill();
      ink.globalAlpha = 1;
    };
    step(total, colors.faint, 0.16);
    step(passing, colors.succeeded, 0.45);
    for (const flip of flips) {
      const x = this.x(this.place(flip.index));
      const tip = flip.passes ? -1 : 1;
      const y = top + 4;
      ink.fillStyle = flip.passes ? colors.succeeded : colors.failed;
      ink.beginPath();
      ink.moveTo(x, y + 4 * tip);
      ink.lineTo(x + 4, y - 3 * tip);
      ink.lineTo(x - 4, y - 3 * tip);
      ink.closePath();
      ink.fill();
    }
  }

  // A bar for each event, as high as what was said is long; one bar for those of a pixel.
  paintEvents(ink, top, height, colors) {
    const events = this.session.events;
    const room = (this.inner / Math.max(1, events.length)) / (this.to - this.from);
    const width = Math.max(1.5, Math.min(7, room * (this.byTime ? 0.4 : 0.62)));
    const columns = new Map();
    events.forEach((event, index) => {
      const x = this.x(this.place(index));
      if (x < this.left - 8 || x > this.left + this.inner + 8) return;
      const column = Math.round(x / width);
      const had = columns.get(column);
      const tall = 3 + Math.min(1, Math.log2(1 + weight(event)) / 14) * (height - 12);
      const failed = event.failed || (had && had.failed);
      if (!had || had.tall < tall || event.failed) columns.set(column, { x, tall: Math.max(tall, had ? had.tall : 0), event, failed });
      if (this.hits && this.hits.has(index)) columns.get(column).hit = true;
      else if (had && had.hit) columns.get(column).hit = true;
    });
    for (const { x, tall, event, failed, hit } of columns.values()) {
      ink.fillStyle = failed ? colors.failed : colors[roleOf(event)];
      ink.fillRect(x - width / 2, top + height - tall, width, tall);
      if (failed) {
        ink.beginPath();
        ink.arc(x, top + height - tall - 4, 2.5, 0, 7);
        ink.fill();
      }
      if (hit) {
        ink.fillStyle = colors.hit;
        ink.fillRect(x - Math.max(width, 3) / 2, top + height + 1, Math.max(width, 3), 3);
      }
    }
    ink.fillStyle = colors.line;
    ink.fillRect(this.left, top + height, this.inner, 1);
  }

  paintAxis(ink, top, colors) {
    ink.fillStyle = colors.faint;
    ink.font = "11px system-ui, sans-serif";
    ink.textBaseline = "top";
    const marks = this.byTime ? this.timeMarks() : this.seqMarks();
    let free = -Infinity;
    for (const [place, label] of marks) {
      const x = this.x(place);
      const width = ink.measureText(label).width;
      const at = Math.min(Math.max(x - width / 2, this.left), this.left + this.inner - width + 8);
      if (at < free || x < this.left - 1 || x > this.left + this.inner + 1) continue;
      ink.fillRect(x, top - 3, 1, 3);
      ink.fillText(label, at, top + 1);
      free = at + width + 14;
    }
  }

  timeMarks() {
    const low = this.low + this.from * (this.high - this.low);
    const high = this.low + this.to * (this.high - this.low);
    const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000];
    const wanted = (high - low) / 1000 / Math.max(2, this.inner / 110);
    const step = (steps.find((one) => one >= wanted) || 31536000 * Math.ceil(wanted / 31536000)) * 1000;
    const zone = new Date(low).getTimezoneOffset() * 60000;
    const marks = [];
    for (let at = Math.ceil((low - zone) / step) * step + zone; at <= high; at += step) {
      const words = moment(at);
      marks.push([(at - this.low) / (this.high - this.low || 1), step >= 86400000 ? words.slice(0, 10) : step >= 60000 ? words.slice(11, 16) : words.slice(11)]);
    }
    return marks;
  }

  seqMarks() {
    const events = this.session.events;
    const first = Math.ceil(this.from * (events.length - 1));
    const last = Math.floor(this.to * (events.length - 1));
    const step = niceStep((last - first) / Math.max(2, this.inner / 80));
    const marks = [];
    for (let index = Math.ceil(first / step) * step; index <= last; index += step) marks.push([this.place(index), "#" + events[index].seq]);
    return marks;
  }

  paintCursor(ink, height, colors) {
    if (this.current === undefined || this.current === null || this.current < 0) return;
    const x = this.x(this.place(this.current));
    if (x < this.left - 6 || x > this.left + this.inner + 6) return;
    ink.fillStyle = colors.accent;
    ink.globalAlpha = 0.16;
    ink.fillRect(x - 5, 0, 10, height - AXIS_HEIGHT);
    ink.globalAlpha = 1;
    ink.fillRect(x - 0.75, 0, 1.5, height - AXIS_HEIGHT);
  }

  // The event that is nearest to a place on the canvas.
  nearest(clientX) {
    const box = this.canvas.getBoundingClientRect();
    const place = this.from + ((clientX - box.left - this.left) / this.inner) * (this.to - this.from);
    const events = this.session.events;
    if (!this.byTime) return Math.min(events.length - 1, Math.max(0, Math.round(place * (events.length - 1))));
    return nearestTime(this.session, this.low + place * (this.high - this.low));
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (press) => {
      if (press.button) return;
      canvas.setPointerCapture(press.pointerId);
      this.pointers.set(press.pointerId, press.clientX);
      if (this.pointers.size === 1) this.onPick(this.nearest(press.clientX));
    });
    canvas.addEventListener("pointermove", (move) => this.move(move));
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      canvas.addEventListener(name, (end) => {
        if (name === "pointerleave" && this.pointers.has(end.pointerId)) return;
        this.pointers.delete(end.pointerId);
        if (name === "pointerleave") this.tip.hidden = true;
      });
    }
    canvas.addEventListener(
      "wheel",
      (turn) => {
        const box = canvas.getBoundingClientRect();
        if (turn.ctrlKey || turn.metaKey) {
          turn.preventDefault();
          this.zoom(Math.exp(-turn.deltaY / 240), Math.min(1, Math.max(0, (turn.clientX - box.left - this.left) / this.inner)));
        } else if (Math.abs(turn.deltaX) > Math.abs(turn.deltaY) || turn.shiftKey) {
          turn.preventDefault();
          const width = this.to - this.from;
          this.look(this.from + ((turn.deltaX || turn.deltaY) / this.inner) * width, width);
        }
      },
      { passive: false },
    );
  }

  move(move) {
    if (!this.session.events.length) return;
    if (this.pointers.has(move.pointerId)) {
      const others = [...this.pointers].filter(([id]) => id !== move.pointerId);
      const before = this.pointers.get(move.pointerId);
      this.pointers.set(move.pointerId, move.clientX);
      if (others.length === 1) this.pinch(before, move.clientX, others[0][1]);
      else this.onPick(this.nearest(move.clientX));
      return;
    }
    if (move.pointerType === "touch") return;
    const event = this.session.events[this.nearest(move.clientX)];
    const words = el("span", null, "#" + event.seq + "  " + clock(event.at) + "  ", said(firstLine(describe(event), 90)));
    this.tip.replaceChildren(words);
    this.tip.hidden = false;
    const box = this.canvas.getBoundingClientRect();
    const x = this.x(this.place(event.index));
    this.tip.style.left = Math.max(0, Math.min(x + 10, box.width - this.tip.offsetWidth - 4)) + "px";
  }

  // Two fingers: what is below each of them stays there.
  pinch(before, now, other) {
    const box = this.canvas.getBoundingClientRect();
    const width = this.to - this.from;
    const placeOf = (clientX) => this.from + ((clientX - box.left - this.left) / this.inner) * width;
    const spread = Math.abs(placeOf(before) - placeOf(other));
    const pixels = Math.max(24, Math.abs(now - other));
    const wider = Math.min(1, Math.max(0.002, (spread / pixels) * this.inner));
    this.look(placeOf(other) - ((other - box.left - this.left) / this.inner) * wider, wider);
  }
}

// Runs as bars in as many lanes as overlap, and the checkpoints of each. A bar covers the time that
// the run says it took, and its events, which an import may have given other times.
function lanesOf(session) {
  const ends = [];
  const laneOf = new Map();
  const bars = session.runs.map((run) => {
    const first = session.at.get(run.first_seq) || 0;
    const final = session.at.get(run.last_seq) || 0;
    const times = [first, final].map((index) => session.events[index].at);
    const from = Math.min(Date.parse(run.started_at), ...times);
    const until = Math.max(Date.parse(run.ended_at || run.last_at), ...times);
    let lane = ends.findIndex((end) => end <= from);
    if (lane < 0) lane = ends.length < RUN_LANES_MAX ? ends.length : RUN_LANES_MAX - 1;
    ends[lane] = Math.max(ends[lane] || 0, until);
    laneOf.set(run.run_id, lane);
    return { run, lane, from, until, first, final };
  });
  const checkpoints = [];
  for (const event of session.events) {
    for (const [part, , after] of event.deltas || []) {
      if (part === "checkpoint" && after) checkpoints.push({ index: event.index, lane: laneOf.get(after.run_id) || 0, status: after.status });
    }
  }
  return { bars, checkpoints, count: ends.length || Number(checkpoints.length > 0) };
}

// Whether, along the clock, nearly all events would stand in a few places.
function isCrowded(times) {
  const sorted = [...times].sort((one, other) => one - other);
  const span = sorted[sorted.length - 1] - sorted[0];
  const cells = new Set(sorted.map((at) => Math.floor(((at - sorted[0]) / (span || 1)) * 100)));
  return cells.size < Math.min(8, times.length * 0.45);
}

function nearestTime(session, ms) {
  // Imported events need not be in the order of their times, so all are looked at.
  let best = 0;
  let least = Infinity;
  session.events.forEach((event, index) => {
    const off = Math.abs(event.at - ms);
    if (off < least) {
      least = off;
      best = index;
    }
  });
  return best;
}

function weight(event) {
  let sum = 0;
  for (const message of event.messages || []) {
    for (const part of message.parts) {
      const text = part[0] === "result" ? part[2] : part[1];
      sum += typeof text === "string" && part[0] !== "call" ? text.length : 80;
    }
  }
  return sum;
}

function roleOf(event) {
  if (!event.messages || !event.messages.length) return event.kind === "change" ? "change" : "other";
  const message = event.messages[0];
  return message.parts.length && message.parts.every((part) => part[0] === "result") ? "tool" : message.role;
}

function bounds(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function niceStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
  return Math.max(1, [1, 2, 5, 10].map((one) => one * power).find((one) => one >= wanted) || 1);
}

function paletteOf() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue("--" + name).trim();
  return {
    ink: color("ink"),
    paper: color("paper"),
    faint: color("faint"),
    line: color("line"),
    accent: color("accent"),
    hit: color("hit"),
    succeeded: color("good"),
    failed: color("bad"),
    died: color("bad"),
    open: color("accent"),
    ended: color("faint"),
    in_progress: color("accent"),
    user: color("user"),
    assistant: color("assistant"),
    tool: color("tool"),
    system: color("system"),
    change: color("change"),
    other: color("other"),
  };
}
