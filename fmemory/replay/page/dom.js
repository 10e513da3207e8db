// Building elements. Text of the log only ever becomes a text node: nothing here parses markup.

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") made.className = value;
    else if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

// Characters that could hide something, or turn the text around them, are shown as what they are.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

function shown(text) {
  return String(typeof text === "object" ? JSON.stringify(text) : text)
    .replace(/\r\n/g, "\n")
    .replace(HIDDEN, (one) => {
      const code = one.codePointAt(0);
      if (code < 0x20) return String.fromCharCode(0x2400 + code);
      if (code === 0x7f) return "\u2421";
      return "\u27e8U+" + code.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
    });
}

// An element for text of the log: isolated, so that its direction ends where it ends.
function said(text, tag, name) {
  return el(tag || "span", { class: "said" + (name ? " " + name : ""), dir: "auto" }, shown(text));
}

const LONG_CHARACTERS = 6000;
const LONG_LINES = 80;

// A block of text of the log; a long one is cut, with a button for the rest.
function longText(text, tag, name) {
  const whole = shown(text);
  let end = whole.length > LONG_CHARACTERS ? LONG_CHARACTERS : whole.length;
  let at = -1;
  for (let line = 0; line < LONG_LINES; line++) {
    at = whole.indexOf("\n", at + 1);
    if (at < 0) break;
  }
  if (at >= 0 && at < end) end = at;
  const block = el(tag, { class: "said " + (name || ""), dir: "auto" }, whole.slice(0, end));
  if (whole.length - end < 200) {
    block.append(whole.slice(end));
    return block;
  }
  const more = el("button", { type: "button", class: "more" }, "show all, " + size(whole.length) + " characters");
  const holder = el("div", { class: "cut" }, block, more);
  holder.showAll = () => {
    block.append(whole.slice(end));
    more.remove();
    holder.showAll = null;
  };
  more.addEventListener("click", () => holder.showAll && holder.showAll());
  return holder;
}

function fold(name, summary, build, open) {
  const made = el("details", { class: name, open: Boolean(open) }, el("summary", null, ...summary));
  let built = false;
  const fill = () => {
    if (built) return;
    built = true;
    made.append(...build());
  };
  made.fill = fill;
  if (open) fill();
  made.addEventListener("toggle", () => made.open && fill());
  return made;
}

function firstLine(text, most) {
  const found = /[^\s][^\n]*/.exec(text.slice(0, 4000));
  const line = found ? found[0].replace(/\s+/g, " ").trim() : "";
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
}

function size(count) {
  if (count < 10000) return count.toLocaleString("en");
  if (count < 999500) return Math.round(count / 1000) + " k";
  return (count / 1e6).toFixed(1) + " M";
}

function bytes(count) {
  if (count < 1024) return count + " B";
  if (count < 1024 * 1024) return (count / 1024).toFixed(1) + " KiB";
  return (count / 1024 / 1024).toFixed(1) + " MiB";
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });

function clock(ms) {
  return CLOCK.format(ms);
}

function day(ms) {
  return DAY.format(ms);
}

// The form in which the commands show a moment.
function moment(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + clock(ms);
}

function duration(seconds) {
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 60) return (seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + "m " + Math.round(seconds % 60) + "s";
  if (seconds < 86400) return Math.floor(seconds / 3600) + "h " + Math.round((seconds % 3600) / 60) + "m";
  return Math.floor(seconds / 86400) + "d " + Math.round((seconds % 86400) / 3600) + "h";
}

function count(number, word) {
  return number.toLocaleString("en") + " " + word + (number === 1 ? "" : "s");
}

function link(seq, name, before) {
  return el("a", { href: "#" + seq, class: "ref" + (name ? " " + name : "") }, (before || "") + "#" + seq);
}
