"use strict";
// The page of `foretrace view`. All that comes from a trace is put in as text (textContent), never as markup.
const foretrace = (() => {
  // ---- data: inside the page, or in data/NAME.js, since a page opened from disk cannot fetch ----
  const values = new Map();
  const waiting = new Map();

  /** Reads JSON; a number that JavaScript would change (a long integer, 1e400) stays as it was written. */
  function readJson(text) {
    if (!JSON.rawJSON || !/\d{16}|\d[eE]|\.\d*0\b/.test(text)) return JSON.parse(text);
    return JSON.parse(text, (_, value, context) => (typeof value === "number" && String(value) !== context.source ? JSON.rawJSON(context.source) : value));
  }

  /** Reads a piece of the page, in which short numbers are counted with: only long integers stay as they were written. */
  function readPiece(text) {
    if (!JSON.rawJSON || !/[\s:,[]-?\d{16}/.test(text)) return JSON.parse(text);
    return JSON.parse(text, (_, value, context) => (typeof value === "number" && /^-?\d{16,}$/.test(context.source) && String(value) !== context.source ? JSON.rawJSON(context.source) : value));
  }

  function take(name, text) {
    values.set(name, readPiece(text));
    waiting.get(name)?.resolve(values.get(name));
  }

  function load(name) {
    if (values.has(name)) return Promise.resolve(values.get(name));
    if (waiting.has(name)) return waiting.get(name).promise;
    const block = [...document.querySelectorAll("script[data-name]")].find((b) => b.dataset.name === name);
    if (block) {
      values.set(name, readPiece(block.textContent));
      return Promise.resolve(values.get(name));
    }
    const entry = {};
    entry.promise = new Promise((resolve, reject) => { entry.resolve = resolve; entry.reject = reject; });
    waiting.set(name, entry);
    if (name !== "meta") {
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onerror = () => { waiting.delete(name); entry.reject(new Error(`data/${name}.js cannot be read: is the folder whole?`)); };
      document.head.append(script);
    }
    return entry.promise;
  }

  // ---- elements ----
  /** Words with `names` in them, these as code. */
  const withCode = (text) => text.split("`").map((part, n) => (n % 2 ? h("code", {}, part) : part));

  const SVG = "http://www.w3.org/2000/svg";

  /** An element. Attributes `on*` are functions, `style` an object; children are elements or texts. */
  function h(tag, given, ...children) {
    const [name, id] = tag.split(".")[0].split("#");
    const at = [name, ...tag.split(".").slice(1)];
    const svg = ["svg", "rect", "path", "line", "text", "title", "g", "pattern", "defs", "circle"].includes(name);
    const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    if (id) node.id = id;
    if (at.length > 1) node.setAttribute("class", at.slice(1).join(" "));
    for (const [key, value] of Object.entries(given || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "style") Object.assign(node.style, value);
      else if (key === "class") node.classList.add(...value.split(" ").filter(Boolean));
      else node.setAttribute(key, value === true ? "" : value);
    }
    add(node, children);
    return node;
  }

  function add(node, children) {
    for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) node.append(child);
    return node;
  }

  const number = (value, digits = 0) =>
    value === null || value === undefined ? "–" : Math.abs(value) >= 1e12 ? Number(value).toExponential(2) : value.toLocaleString("en", { maximumFractionDigits: digits });
  const counted = (n, one, more = `${one}s`) => `${number(n)} ${n === 1 ? one : more}`;
  const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part === whole ? 0 : 1)}%` : "–");

  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (Math.abs(value) < 0.01) return value === 0 ? "0 s" : `${(value * 1000).toFixed(1)} ms`;
    if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
    return value < 6000 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
  }

  function say(text) {
    const live = document.getElementById("live");
    live.textContent = "";
    live.textContent = text;
  }

  async function copy(text, button) {
    let done = false;
    try { await navigator.clipboard.writeText(text); done = true; } catch {
      const area = h("textarea.visually-hidden", { "aria-hidden": "true" });
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    say(done ? "copied" : "could not copy");
    if (!button) return;
    const before = button.textContent;
    button.textContent = done ? "copied" : "failed";
    setTimeout(() => { button.textContent = before; }, 1200);
  }

  /** Puts what `make` makes of each item into `place`, some at a time; returns the button that asks for more. */
  function fillInParts(place, items, make, step = 100) {
    let put = 0;
    const more = h("button.more", { type: "button", onclick: () => fill() });
    const fill = () => {
      place.append(...items.slice(put, put + step).map(make));
      put = Math.min(put + step, items.length);
      more.hidden = put >= items.length;
      more.textContent = `show more (${number(items.length - put)} left)`;
    };
    fill();
    return more;
  }

  const copyButton = (getText, label = "copy", about = label) =>
    h("button.quiet", { type: "button", "aria-label": about, onclick: (e) => copy(getText(), e.currentTarget) }, label);

  // ---- text of a trace: escapes shown, colors of a terminal kept, never markup ----
  const SPECIAL = /\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\)?|\x1b[@-Z\\^_=>()#][0-9A-B]?|[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\ufeff]|[\0-\x08\x0b-\x1f\x7f-\x9f]|\[REDACTED[^\]\n]{0,80}\]|<SECRET:[^>\n]{1,80}>|redacted-user-[\w.-]{1,40}|\[\d+ (?:characters|earlier messages?) left out\]/g;

  /** Which of a terminal's eight colors is near a red, green and blue: those read well in light and in dark. */
  function nearColor(rgb) {
    const least = 0.6 * Math.max(...rgb);
    return rgb.reduce((color, amount, bit) => color + (amount > 0 && amount >= least ? 1 << bit : 0), 0);
  }

  /** The same for a color of the 256; null for a gray. */
  function nearPalette(n) {
    if (n < 16) return n % 8;
    return n > 231 ? null : nearColor([Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6]);
  }

  function styleOf(codes, style) {
    const parts = (codes || "0").split(/[;:]/).map(Number);
    const next = { ...style };
    for (let i = 0; i < parts.length; i++) {
      const code = parts[i];
      if (code === 0) { next.fg = next.bg = null; next.bold = next.dim = next.line = false; }
      else if (code === 1) next.bold = true;
      else if (code === 2) next.dim = true;
      else if (code === 4) next.line = true;
      else if (code === 22) next.bold = next.dim = false;
      else if (code === 24) next.line = false;
      else if (code >= 30 && code <= 37) next.fg = code - 30;
      else if (code >= 90 && code <= 97) next.fg = code - 90;
      else if (code === 39) next.fg = null;
      else if (code >= 40 && code <= 47) next.bg = code - 40;
      else if (code === 49) next.bg = null;
      else if (code === 38 || code === 48) {
        const short = parts[i + 1] === 5;
        next[code === 38 ? "fg" : "bg"] = short ? nearPalette(parts[i + 2]) : nearColor(parts.slice(i + 2, i + 5));
        i += short ? 2 : 4;
      }
    }
    return next;
  }

  function fillText(node, text) {
    if (text.includes("\r")) text = text.replace(/\r\n?/g, "\n");
    let last = 0;
    let style = {};
    const put = (part) => {
      if (!part) return;
      const names = [style.fg != null && `fg${style.fg}`, style.bg != null && `bg${style.bg}`, style.bold && "bold", style.dim && "dim", style.line && "under"];
      const set = names.filter(Boolean);
      node.append(set.length ? h("span", { class: set.join(" ") }, part) : part);
    };
    for (const found of text.matchAll(SPECIAL)) {
      put(text.slice(last, found.index));
      last = found.index + found[0].length;
      const code = found[0].codePointAt(0);
      if (found[1] !== undefined) style = styleOf(found[1], style);
      else if (/^(?:\[REDACTED|<SECRET:|redacted-user-)/.test(found[0])) node.append(h("mark.redacted", { title: "redacted" }, found[0]));
      else if (code === 0x5b) node.append(h("mark.cut", {}, found[0]));
      else if (code === 0x1b && found[0].length > 1) continue; // moves the cursor or names a window: says nothing here
      else node.append(h("span.control", { title: "a control character" }, code < 32 ? String.fromCharCode(0x2400 + code) : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`));
    }
    put(text.slice(last));
    return node;
  }

  const HEAD = { lines: 14, chars: 2400 };
  const PIECE = 150000;

  /** A block of text, its beginning first; the rest is put in when it is asked for. */
  function textBlock(text, given = {}) {
    const limit = { ...HEAD, ...given };
    const pre = h(given.prose ? "div.text.prose" : "pre.text", { dir: "auto", class: given.class });
    let cut = text.length;
    let at = -1;
    for (let line = 0; line < limit.lines; line++) {
      at = text.indexOf("\n", at + 1);
      if (at < 0) break;
    }
    if (at >= 0) cut = at;
    cut = Math.min(cut, limit.chars);
    const short = text.length - cut < 160 && !text.slice(cut).trim().includes("\n");
    fillText(pre, short ? text : text.slice(0, cut));
    const block = h("div.block", {}, pre);
    block.append(h("div.tools", {}, copyButton(() => text, "copy", "copy this text")));
    if (!short) {
      let lines = 0;
      for (let i = cut; i >= 0 && i < text.length && lines < 1e6; lines++) i = text.indexOf("\n", i + 1) < 0 ? -1 : text.indexOf("\n", i + 1);
      let shown = cut;
      const more = h("button.more", {
        type: "button", "aria-expanded": "false",
        onclick: () => {
          fillText(pre, text.slice(shown, shown + PIECE));
          shown += PIECE;
          if (shown >= text.length) more.remove();
          else more.textContent = `show more (${counted(text.length - shown, "character")} left)`;
        },
      }, lines > 1 ? `show ${counted(lines, "more line")}` : `show ${counted(text.length - cut, "more character")}`);
      block.append(more);
    }
    return block;
  }

  // ---- diffs ----
  /** Lines of two texts, as [mark, line]: those at both ends in common, and of the middle the longest common lines. */
  function compareLines(before, after) {
    const a = before.split("\n");
    const b = after.split("\n");
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start++;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
    const x = a.slice(start, a.length - end);
    const y = b.slice(start, b.length - end);
    const rows = a.slice(0, start).map((line) => [" ", line]);
    if (x.length * y.length > 250000) {
      rows.push(...x.map((line) => ["-", line]), ...y.map((line) => ["+", line]));
    } else {
      const w = y.length + 1;
      const best = new Uint16Array((x.length + 1) * w);
      for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--)
        best[i * w + j] = x[i] === y[j] ? best[(i + 1) * w + j + 1] + 1 : Math.max(best[(i + 1) * w + j], best[i * w + j + 1]);
      let i = 0;
      let j = 0;
      while (i < x.length || j < y.length) {
        if (i < x.length && j < y.length && x[i] === y[j]) { rows.push([" ", x[i]]); i++; j++; }
        else if (j >= y.length || (i < x.length && best[(i + 1) * w + j] >= best[i * w + j + 1])) rows.push(["-", x[i++]]);
        else rows.push(["+", y[j++]]);
      }
    }
    rows.push(...a.slice(a.length - end).map((line) => [" ", line]));
    return rows;
  }

  /** Parts of two lines that take each other's place, as [differs, text] of the one and of the other; null where they
   *  have too little in common for that to help. */
  function compareWords(before, after) {
    if (before.length + after.length > 20000) return null;
    const words = (line) => (line.match(/\w+|\s+|[^\w\s]/g) || []).map((word) => word.replaceAll("\n", " ")).join("\n");
    const found = compareLines(words(before), words(after));
    const same = found.filter(([mark]) => mark === " ").reduce((sum, [, word]) => sum + word.trim().length, 0);
    if (same * 3 < Math.max(before.length, after.length)) return null;
    const side = (mark) => {
      const parts = [];
      for (const [m, word] of found) {
        if (m !== " " && m !== mark) continue;
        if (parts.at(-1)?.[0] === (m === mark)) parts.at(-1)[1] += word; else parts.push([m === mark, word]);
      }
      return parts;
    };
    return [side("-"), side("+")];
  }

  const DIFF_CLASS = { "+": "added", "-": "removed", "@": "hunk" };

  function diffBlock(rows, whole) {
    const box = h("div.diff.text", { dir: "ltr" });
    const show = (from, to) => {
      for (const [mark, line] of rows.slice(from, to)) {
        const row = h("div.line", { class: DIFF_CLASS[mark] }, h("span.mark", { "aria-label": { "+": "added", "-": "removed" }[mark] }, mark === "@" ? " " : mark));
        row.append(fillText(h("span", { dir: "auto" }), line));
        box.append(row);
      }
    };
    show(0, 60);
    const block = h("div.block", {}, box, h("div.tools", {}, copyButton(() => whole, "copy", "copy the diff")));
    if (rows.length > 60) {
      const more = h("button.more", { type: "button", onclick: () => { show(60); more.remove(); } }, `show ${counted(rows.length - 60, "more line")}`);
      block.append(more);
    }
    return block;
  }

  function patchRows(text) {
    return text.split("\n").map((line) => {
      if (/^(@@|diff --git|index |\*\*\* |---( |$)|\+\+\+( |$))/.test(line)) return ["@", line];
      return "+-".includes(line[0] || " ") && line ? [line[0], line.slice(1)] : [" ", line.replace(/^ /, "")];
    });
  }

  const isPatch = (text) => /^\*\*\* Begin Patch/m.test(text) || /^diff --git /m.test(text) || (/^--- /m.test(text) && /^\+\+\+ /m.test(text)) || /^@@ .*@@/m.test(text);

  // ---- state ----
  let meta = null;
  const rows = {};
  let count = 0;
  let loaded = 0;
  const byKey = new Map();
  const children = new Map();
  const main = () => document.getElementById("main");
  const state = { q: "", picked: {}, from: "", to: "", sort: "order", down: false, shown: 100, tab: "" };
  let order = [];

  /** What a trace goes by in links: its key, and of two folders, which may both have it, the folder too. */
  const nameIn = (i, key) => (meta.folders.length > 1 ? `${meta.folders[rows.run[i]]}:${key}` : key);

  function takeRows(chunk) {
    const size = chunk.key.length;
    for (const [name, column] of Object.entries(chunk)) if (rows[name]) for (const value of column) rows[name].push(value); else rows[name] = column;
    rows.name ||= [];
    for (let i = count; i < count + size; i++) {
      rows.name.push(nameIn(i, rows.key[i]));
      byKey.set(rows.name[i], i);
      const parent = rows.parent[i] && nameIn(i, rows.parent[i][0]);
      if (parent) children.set(parent, [...(children.get(parent) || []), i]);
    }
    count += size;
    loaded += 1;
  }

  async function loadRows(until) {
    while (loaded < meta.chunks && !until?.()) takeRows(await load(`index-${loaded}`));
  }

  // ---- places: #KEY opens a trace, #KEY/STEP a step of it, #=TAB a part of the page (as #TAB, if no key is that) ----
  const encode = (key) => encodeURIComponent(key).replaceAll("%2F", "/").replaceAll("%40", "@").replaceAll("%3A", ":");
  const linkTo = (key, step) => `#${encode(key)}${step === undefined ? "" : `/${step}`}`;

  async function readPlace() {
    let text = location.hash.slice(1);
    if (!text || text.startsWith("=")) return { tab: text.slice(1) }; // a key that begins with = is escaped in links
    try { text = decodeURIComponent(text); } catch { /* a hash that somebody typed */ }
    await loadRows(() => byKey.has(text));
    if (byKey.has(text)) return { row: byKey.get(text) };
    const part = Object.keys(parts).find((name) => [name, parts[name].label].includes(text));
    if (part !== undefined) return { tab: part };
    const cut = text.lastIndexOf("/");
    const key = text.slice(0, cut);
    if (/^\d+$/.test(text.slice(cut + 1)) && byKey.has(key)) return { row: byKey.get(key), step: Number(text.slice(cut + 1)) };
    return { missing: text };
  }

  // ---- the frame ----
  function showTop(tabs) {
    const theme = h("button.quiet", { type: "button", "aria-label": "light or dark", onclick: switchTheme }, "◐");
    const help = h("button.quiet", { type: "button", "aria-label": "keys", onclick: showHelp }, "?");
    document.getElementById("top").replaceChildren(
      h("button.skip", { type: "button", onclick: () => main().focus() }, "to the content"),
      h("a.home", { href: "#=" }, meta.title || (meta.folders || []).join(" · ")),
      h("nav", { "aria-label": "parts" }, tabs.map(([name, label]) =>
        h("a", { href: `#=${name}`, "aria-current": state.tab === name ? "page" : null }, label))),
      h("span.grow"), theme, help);
  }

  function switchTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("foretrace-theme", root.dataset.theme); } catch { /* a page from disk may have none */ }
  }

  const KEYS = [["j / k", "next / previous trace or step"], ["Enter", "open the trace"], ["u or Esc", "back to the list"],
    ["/", "search"], ["o", "unfold or fold everything"], ["r", "raw JSON of the trace"], ["[ / ]", "previous / next trace of the list"], ["?", "these keys"]];

  function dialog(title, ...content) {
    const box = h("dialog", { "aria-label": title, onclick: (e) => { if (e.target === box) box.close(); }, onclose: () => box.remove() },
      h("div.row", {}, h("h2", {}, title), h("span.grow"), h("button", { type: "button", onclick: () => box.close() }, "close")), content);
    document.body.append(box);
    box.showModal();
    return box;
  }

  const showHelp = () => dialog("Keys", h("dl.keys", {}, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("p.faint", {}, `Written by foretrace ${meta.version}. The page asks for nothing from the network.`));

  // ---- searching: words in what a list shows, or in all texts behind it ----
  const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  const hasWords = (text, words) => { const lower = text.toLowerCase(); return words.every((word) => lower.includes(word)); };
  const joinTexts = (value) => (typeof value === "string" ? value : value && typeof value === "object" ? Object.values(value).map(joinTexts).join("\n") : "");
  let searches = 0;

  /** Which of the items, each [piece, place in it] or null, have all words in their texts; null where a newer search
   *  has begun. Pieces are read one by one, and those that nobody had opened are given up again. */
  async function findTexts(items, words) {
    const search = ++searches;
    const found = new Set();
    const byPiece = new Map();
    items.forEach((item, n) => { if (item) byPiece.set(item[0], [...(byPiece.get(item[0]) || []), [n, item[1]]]); });
    for (const [piece, list] of byPiece) {
      const had = values.has(piece);
      const texts = await load(piece);
      await new Promise((done) => setTimeout(done)); // between pieces the page answers
      if (search !== searches) return null;
      for (const [n, place] of list) if (hasWords(joinTexts(texts[place]), words)) found.add(n);
      if (!had) { values.delete(piece); waiting.delete(piece); }
    }
    return found;
  }

  /** A box for words and one to tick for all texts. `where` holds q, deep and hits; `again` shows the list anew. */
  function searchBox(what, where, listItems, again) {
    const look = async () => {
      const words = wordsOf(where.q);
      searches += 1;
      Object.assign(where, { hits: null, searching: where.deep && words.length > 0 });
      again();
      if (!where.searching) return;
      const hits = await findTexts(await listItems(), words);
      if (hits) { Object.assign(where, { hits, searching: false }); again(); }
    };
    const lookSoon = () => { clearTimeout(soon); soon = setTimeout(() => look().catch(fail), 150); };
    const box = h("input#search", { type: "search", placeholder: `search ${what}  ( / )`, "aria-label": `search ${what}`, "data-control": "search", oninput: (e) => { where.q = e.target.value; lookSoon(); } });
    box.value = where.q;
    return [box, h("label.deep", {}, h("input", { type: "checkbox", "data-control": "deep", checked: where.deep, onchange: (e) => { where.deep = e.target.checked; lookSoon(); } }), " in all texts")];
  }
  const searchNote = (where) => (where.searching ? h("span.faint", {}, "searching all texts …") : null);

  // ---- the list of traces ----
  const SUCCESS = ["failed", "success", "unknown"];
  const one = (name, kind = name) => ({ of: (i) => [rows[name][i]], text: (id) => meta.texts[kind]?.[id] || "(none)" });
  const many = (name, kind) => ({ of: (i) => rows[name][i], text: (id) => meta.texts[kind]?.[id] || "(none)" });
  const FACETS = {
    outcome: { of: (i) => [rows.success[i]], text: (id) => SUCCESS[id] },
    run: { of: (i) => [rows.run[i]], text: (id) => meta.folders[id] },
    source: one("source"), agent: one("agent"), model: one("model"), protocol: one("protocol"),
    action: { of: (i) => rows.actions[i].flatMap((n, a) => (n ? [a] : [])), text: (id) => meta.actions[id] },
    effect: many("effects", "effect"), tool: many("tools", "tool"), rule: many("rules", "rule"),
    status: one("status"), error: one("error"), flag: many("flags", "flag"),
  };
  const SORTS = {
    order: ["as stored", (i) => i], key: ["trace", (i) => rows.key[i]], outcome: ["outcome", (i) => rows.success[i]], reward: ["reward", (i) => rows.reward[i]],
    steps: ["steps", (i) => rows.steps[i]], model: ["model", (i) => meta.texts.model[rows.model[i]]],
    time: ["time", (i) => total(i)], started: ["started", (i) => rows.started[i]],
  };
  const total = (i) => (rows.model_s[i] || 0) + (rows.tool_s[i] || 0) || null;

  /** Of each row, how many of the picked filters it fails, and the last that it fails: a facet counts the rows that
   *  nothing but itself leaves out. */
  let fails = new Uint8Array(0);
  let failsLast = [];

  function select() {
    fails = new Uint8Array(count);
    failsLast = new Array(count);
    const words = wordsOf(state.q);
    if (words.length || state.from || state.to) {
      const tools = (meta.texts.tool || []).map((tool) => tool.toLowerCase());
      for (let i = 0; i < count; i++) {
        const day = (rows.started[i] || "").slice(0, 10);
        if ((state.from && day < state.from) || (state.to && (!day || day > state.to))) { fails[i] = 2; continue; }
        if (!words.length || state.hits?.has(i)) continue;
        const text = `${rows.key[i]} ${rows.title[i]} ${meta.texts.task[rows.task[i]]} ${meta.texts.model[rows.model[i]]} ${meta.texts.source[rows.source[i]]}`.toLowerCase();
        if (!words.every((word) => text.includes(word) || rows.tools[i].some((t) => tools[t].includes(word)))) fails[i] = 2;
      }
    }
    for (const [name, picked] of Object.entries(state.picked)) {
      if (!picked.size) continue;
      const of = FACETS[name].of;
      for (let i = 0; i < count; i++) if (fails[i] < 2 && !of(i).some((id) => picked.has(id))) { fails[i] += 1; failsLast[i] = name; }
    }
    order = [];
    for (let i = 0; i < count; i++) if (!fails[i]) order.push(i);
    const get = SORTS[state.sort][1];
    const sign = state.down ? -1 : 1;
    if (state.sort !== "order" || state.down) order.sort((a, b) => {
      const x = get(a);
      const y = get(b);
      if (x === y) return a - b;
      if (x === null || x === undefined) return 1; // what is not known comes last, either way
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : 1) * sign;
    });
  }

  function shareBar(amounts, big) {
    const sum = amounts.reduce((a, b) => a + b, 0);
    const bar = h("span.share", { class: big ? "big" : "", role: "img", "aria-label": amounts.map((n, a) => n && `${meta.actions[a]} ${n}`).filter(Boolean).join(", ") || "no steps" });
    amounts.forEach((n, a) => { if (n) bar.append(h("i", { class: `a${a}`, title: `${meta.actions[a]} ${n}`, style: { flexGrow: n } })); });
    if (!sum) bar.append(h("i", { style: { flexGrow: 1 } }));
    return bar;
  }

  const outcomeMark = (value) => h("span.outcome", { class: SUCCESS[value], title: `outcome: ${SUCCESS[value]}` }, ["✕", "✓", "?"][value], h("span.visually-hidden", {}, SUCCESS[value]));

  function facetBox(name) {
    const facet = FACETS[name];
    const found = new Map();
    for (let i = 0; i < count; i++) {
      if (fails[i] && !(fails[i] === 1 && failsLast[i] === name)) continue;
      for (const id of facet.of(i)) found.set(id, (found.get(id) || 0) + 1);
    }
    const picked = (state.picked[name] ||= new Set());
    for (const id of picked) if (!found.has(id)) found.set(id, 0);
    const list = [...found].sort((a, b) => b[1] - a[1] || (facet.text(a[0]) < facet.text(b[0]) ? -1 : 1));
    if (list.length < 2 && !picked.size) return null;
    const items = list.map(([id, n], place) => h("li", { class: place >= SHORT_FACET && !picked.has(id) ? "rest" : "" }, h("label", {},
      h("input", { type: "checkbox", "data-control": `${name} ${id}`, checked: picked.has(id), onchange: (e) => { if (e.target.checked) picked.add(id); else picked.delete(id); refresh(); } }),
      name === "action" ? h("i.dot", { class: `a${id}` }) : null,
      h("span.name", { dir: "auto", title: facet.text(id) }, facet.text(id)), h("span.n", {}, number(n)),
      h("i.amount", { style: { width: `${Math.min(100, (100 * n) / (order.length || 1))}%` } }))));
    const box = h("details.facet", { class: wholeFacets.has(name) ? "all" : "", open: openFacets.has(name) || picked.size > 0, ontoggle: (e) => (e.target.open ? openFacets.add(name) : openFacets.delete(name)) },
      h("summary", {}, name, picked.size ? h("b.n", {}, `${picked.size} picked`) : h("span.n", {}, number(list.length))), h("ul", {}, items));
    const showAll = (e) => { wholeFacets.add(name); box.classList.add("all"); e.currentTarget.remove(); box.querySelector(".rest input")?.focus(); };
    if (list.length > SHORT_FACET && !wholeFacets.has(name)) box.append(h("button.more", { type: "button", onclick: showAll }, `all ${number(list.length)}`));
    return box;
  }
  const SHORT_FACET = 8;
  const wholeFacets = new Set();
  const openFacets = new Set(["outcome", "source", "action", "run", "model"]);

  function listRow(i) {
    const key = rows.key[i];
    const facts = [meta.texts.source[rows.source[i]], meta.texts.agent[rows.agent[i]], meta.texts.protocol[rows.protocol[i]]].filter(Boolean);
    const failure = meta.texts.error[rows.error[i]];
    const status = meta.texts.status[rows.status[i]];
    return h("tr", { class: rows.chunk[i] < 0 ? "left-out" : "" },
      h("td.mark", {}, outcomeMark(rows.success[i])),
      h("td.main", {}, h("a.title", { href: linkTo(rows.name[i]), dir: "auto" }, rows.title[i] || key),
        h("span.sub", {}, meta.folders.length > 1 ? h("b", {}, meta.folders[rows.run[i]]) : null, h("span.key", {}, key),
          failure ? h("span.bad", {}, failure) : status !== "done" ? h("span.bad", {}, status) : null)),
      h("td.wide", {}, h("span", {}, meta.texts.model[rows.model[i]] || ""), h("span.sub", {}, facts.join(" · "))),
      h("td.num", {}, number(rows.steps[i])),
      h("td.num.mid", {}, seconds(total(i))),
      meta.has_reward ? h("td.num.wide", {}, rows.reward[i] === null ? "–" : number(rows.reward[i], 3)) : null,
      h("td.bar", {}, shareBar(rows.actions[i])));
  }

  function heading(name, label, kind = "") {
    const on = state.sort === name;
    return h("th", { class: kind, scope: "col", "aria-sort": on ? (state.down ? "descending" : "ascending") : null },
      h("button.sort", { type: "button", "data-control": `sort ${name}`, onclick: () => { state.down = on ? !state.down : FALLS_FIRST.includes(name); state.sort = name; refresh(); } },
        label, h("span", { "aria-hidden": "true" }, on ? (state.down ? " ↓" : " ↑") : "")));
  }

  const FALLS_FIRST = ["steps", "time", "reward", "started"];

  /** The order of the list, for what has no column (on a phone none has). */
  function sortControls() {
    const names = Object.keys(SORTS).filter((name) => (name !== "reward" || meta.has_reward) && (name !== "started" || rows.started.some(Boolean)));
    const put = (sort, down) => { Object.assign(state, { sort, down }); refresh(); };
    return h("span.sorting", {}, h("label", {}, "order ", h("select", { "data-control": "order", onchange: (e) => put(e.target.value, FALLS_FIRST.includes(e.target.value)) }, names.map((name) => h("option", { value: name, selected: state.sort === name }, SORTS[name][0])))),
      h("button.quiet", { type: "button", "data-control": "direction", "aria-label": state.down ? "falling: make it rise" : "rising: make it fall", onclick: () => put(state.sort, !state.down) }, state.down ? "↓" : "↑"));
  }

  function actionSummary() {
    const sums = meta.actions.map(() => 0);
    for (const i of order) rows.actions[i].forEach((n, a) => { sums[a] += n; });
    const whole = sums.reduce((a, b) => a + b, 0);
    if (!whole) return null;
    const picked = (state.picked.action ||= new Set());
    return h("section.actions", { "aria-label": "share of steps by action" }, shareBar(sums, true), h("ul.legend", {}, sums.map((n, a) => n ? h("li", {},
      h("button.quiet", { type: "button", "data-control": `share ${a}`, "aria-pressed": picked.has(a) ? "true" : "false", onclick: () => { if (picked.has(a)) picked.delete(a); else picked.add(a); refresh(); } },
        h("i.dot", { class: `a${a}` }), meta.actions[a], h("span.n", {}, percent(n, whole)))) : null)));
  }

  function showList() {
    document.title = `${meta.folders.join(" · ")} · traces`;
    meta.has_reward = rows.reward.some((r) => r !== null);
    const listItems = async () => { await loadRows(); return rows.chunk.map((chunk, i) => (chunk < 0 ? null : [`traces-${chunk}`, rows.place[i]])); };
    const search = searchBox("traces", state, listItems, () => { state.shown = 100; refresh(); });
    const dates = rows.started.some(Boolean) ? h("div.dates", {},
      h("label", {}, "from ", h("input", { type: "date", value: state.from, onchange: (e) => { state.from = e.target.value; refresh(); } })),
      h("label", {}, "to ", h("input", { type: "date", value: state.to, onchange: (e) => { state.to = e.target.value; refresh(); } }))) : null;
    main().replaceChildren(h("h1.visually-hidden", {}, `Traces of ${meta.folders.join(" and ")}`), h("div.list", {},
      h("aside", { "aria-label": "filters" }, search,
        h("details.filters", { open: matchMedia("(min-width: 800px)").matches }, h("summary", {}, "filters"), h("div#facets"), dates,
          h("button.quiet", { type: "button", onclick: () => { Object.assign(state, { q: "", hits: null, picked: {}, from: "", to: "" }); showList(); } }, "clear all"))),
      h("section#results", { "aria-label": "traces" })));
    refresh();
  }

  /** Makes a part anew, and puts the focus on what stands in the place of what had it. */
  function keepFocus(make) {
    const { dataset, selectionStart } = document.activeElement || {};
    make();
    if (!dataset?.control || document.activeElement !== document.body) return;
    const node = [...document.querySelectorAll("[data-control]")].find((other) => other.dataset.control === dataset.control);
    node?.focus({ preventScroll: true });
    if (node?.type === "search") node.setSelectionRange(selectionStart, selectionStart);
  }

  const refresh = () => keepFocus(putList);

  function putList() {
    if (!document.getElementById("results")) return;
    select();
    document.getElementById("facets").replaceChildren(...Object.keys(FACETS).map(facetBox).filter(Boolean));
    const body = h("tbody");
    const steps = order.reduce((sum, i) => sum + rows.steps[i], 0);
    const good = order.filter((i) => rows.success[i] === 1).length;
    const judged = order.filter((i) => rows.success[i] !== 2).length;
    const listed = `${counted(order.length, "trace")}${order.length < meta.traces ? ` of ${number(meta.traces)}` : ""}`;
    const table = h("table.traces", {}, h("caption.visually-hidden", {}, "traces"), h("thead", {}, h("tr", {}, heading("outcome", h("span.visually-hidden", {}, "outcome"), "mark"), heading("key", "trace"), heading("model", "model, source", "wide"),
      heading("steps", "steps", "num"), heading("time", "time", "num mid"), meta.has_reward ? heading("reward", "reward", "num wide") : null, h("th.bar", { scope: "col" }, "actions"))), body);
    const more = h("button.more", { type: "button", onclick: () => fill() }, "");
    let put = 0;
    const fill = (until = put + 100) => {
      body.append(...order.slice(put, until).map(listRow));
      put = Math.min(until, order.length);
      state.shown = Math.max(state.shown, put);
      more.hidden = put >= order.length;
      more.textContent = `show more (${number(order.length - put)} left)`;
    };
    document.getElementById("results").replaceChildren(h("p.count", {}, h("b", {}, listed), h("span", {}, counted(steps, "step")),
      judged ? h("span", {}, `${percent(good, judged)} of ${number(judged)} judged succeeded`) : null,
      loaded < meta.chunks ? h("span.faint", {}, "loading more …") : searchNote(state),
      meta.left_out ? h("span.bad", {}, `the messages of ${number(meta.left_out)} are left out of this file: it holds 20 MB`) : null, h("span.grow"), sortControls()),
    (meta.unreadable || []).length ? h("details.fold", {}, h("summary.bad", {}, `${counted(meta.unreadable_count, "trace")} cannot be read by foretrace ${meta.version}`), h("ul", {}, meta.unreadable.map(([key, why]) => h("li", {}, h("code", {}, key), ` ${why}`)))) : "",
    actionSummary() || "", order.length ? table : h("p.empty", {}, count ? "No trace fits these filters." : "The folder holds no traces."), more);
    fill(state.shown);
    say(listed);
  }
  let soon = 0;

  // ---- one trace ----
  let current = null;

  async function showTrace(i, step) {
    const key = rows.name[i];
    document.title = `${rows.title[i] || rows.key[i]}`;
    if (current?.key !== key) {
      if (rows.chunk[i] < 0) {
        main().replaceChildren(h("p.empty", {}, `The messages of ${key} are left out: this file holds 20 MB. Write a folder with --out to see them.`));
        return;
      }
      const found = (await load(`traces-${rows.chunk[i]}`))[rows.place[i]];
      current = { key, row: i, ...found };
      main().replaceChildren(tracePage(current));
      scrollTo(0, 0);
    }
    if (step !== undefined) goTo(step, true);
  }

  const chip = (text, kind = "", title = null) => h("span.chip", { class: kind, title }, text);

  function fact(name, value) {
    if (value === null || value === undefined || value === "" || (typeof value === "object" && !(value instanceof Node) && !Object.keys(value).length)) return null;
    const inside = (v) => (v !== null && typeof v === "object" ? JSON.stringify(v) : String(v));
    const words = typeof value === "object" && !Array.isArray(value) ? Object.entries(value).map(([k, v]) => `${k.replaceAll("_", " ")} ${inside(v)}`).join(" · ") : inside(value);
    const shown = value instanceof Node ? value : fillText(h("span", { dir: "auto" }), words);
    return [h("dt", {}, name), h("dd", {}, shown)];
  }

  const linkToTrace = (i) => h("a", { href: linkTo(rows.name[i]), title: rows.key[i], dir: "auto" }, rows.title[i] || rows.key[i]);

  function tracePage(data) {
    const { trace, row } = data;
    const from = trace.provenance;
    const outcome = trace.outcome || {};
    const own = children.get(data.key) || [];
    data.labelOf = new Map(data.labels.map((l) => [l[0], l]));
    data.timeOf = new Map(data.times.map((t) => [t[0], t]));
    data.tokensOf = new Map(data.tokens.map((t) => [t[0], t]));
    const tests = outcome.tests;
    const failure = outcome.error;
    const head = h("section.head", {},
      h("h1", { dir: "auto" }, rows.title[row] || trace.key),
      h("p.row", {}, chip(["✕ failed", "✓ success", "outcome unknown"][rows.success[row]], SUCCESS[rows.success[row]]), (outcome.status || "done") === "done" ? null : chip(outcome.status, "bad"),
        outcome.reward === undefined || outcome.reward === null ? null : chip(`reward ${number(outcome.reward, 4)}`), tests ? chip(`${number(tests.passed)} of ${counted(tests.total, "test")}`) : null,
        outcome.fabricated ? chip("its ending was rewritten by the source", "bad") : null, (outcome.flags || []).map((flag) => chip(`answer: ${flag.replaceAll("_", " ")}`, "bad")), outcome.exit_reason ? chip(outcome.exit_reason) : null,
        chip(counted(rows.steps[row], "step")), chip(counted(trace.messages.length, "message"))),
      failure ? h("p.bad", { dir: "auto" }, `${failure.kind}: ${failure.message || ""}`) : null,
      h("dl.facts", {}, fact("key", h("span", {}, h("code", {}, trace.key), " ", copyButton(() => trace.key, "copy", "copy the key"))), fact("task", trace.task.id === trace.task.group ? trace.task.id : `${trace.task.id}  (group ${trace.task.group})`),
        fact("source", [from.source, from.revision, from.split].filter(Boolean).join(" · ")), fact("agent", from.agent), fact("model", from.model), fact("protocol", from.protocol),
        fact("sampling", from.sampling && Object.entries({ ...from.sampling, seed: from.seed, sample: from.sample }).filter(([, v]) => v !== undefined && v !== null).map(([k, v]) => `${k} ${typeof v === "object" ? JSON.stringify(v) : v}`).join(" · ")), fact("started", rows.started[row]), fact("license", from.license),
        trace.parent ? fact("started by", byKey.has(nameIn(row, trace.parent.key)) ? h("a", { href: linkTo(nameIn(row, trace.parent.key)) }, trace.parent.key) : trace.parent.key) : null,
        own.length ? fact("subagents", h("span", {}, own.map((c) => [linkToTrace(c), h("br")]))) : null),
      h("p.row", {}, h("button", { type: "button", onclick: showRaw }, "raw JSON"), h("button", { type: "button", onclick: foldAll }, "unfold all"),
        copyButton(() => location.href.split("#")[0] + linkTo(data.key), "copy link", "copy a link to this trace"),
        trace.tools?.length ? h("button", { type: "button", onclick: () => dialog("Tools that were offered", trace.tools.map((t) => h("section", {}, h("h3", {}, t.name), textBlock(t.description || "", { prose: true }), t.parameters && t.parameters !== "{}" ? textBlock(pretty(t.parameters)) : null))) }, counted(trace.tools.length, "tool")) : null));
    const find = h("input#search", { type: "search", placeholder: "find in this trace  ( / )", "aria-label": "find in this trace", oninput: (e) => findInTrace(e.target.value) });
    const steps = h("div#steps");
    add(steps, [messagesOf(data)]);
    return h("article.trace", {}, h("p.up", {}, h("a", { href: "#=" }, "← all traces")), head, timeline(data), h("div.strip", {}, ribbon(data), find), steps);
  }

  /** JSON for reading: a text of several lines stands as these lines, between marks. */
  function writeReadable(value, indent = "") {
    const deeper = `${indent}  `;
    if (typeof value === "string" && value.includes("\n")) return `"""\n${value.split("\n").map((line) => (line ? deeper + line : line)).join("\n")}${value.endsWith("\n") ? deeper : ""}"""`;
    if (value === null || typeof value !== "object" || JSON.isRawJSON?.(value)) return JSON.stringify(value);
    const list = Array.isArray(value);
    const items = list ? value.map((item) => writeReadable(item, deeper)) : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${writeReadable(item, deeper)}`);
    const [open, close] = list ? "[]" : "{}";
    return items.length ? `${open}\n${deeper}${items.join(`,\n${deeper}`)}\n${indent}${close}` : open + close;
  }

  function pretty(text) {
    try { return writeReadable(readJson(text)); } catch { return text; }
  }

  function showRaw() {
    const { trace, tokens } = current;
    const text = JSON.stringify(trace, null, 2);
    dialog("Raw JSON", tokens.length ? h("p.faint", {}, `Token ids of ${counted(tokens.length, "message")} are left out.`) : null, textBlock(text, { lines: 400, chars: 60000 }));
  }

  /** Time of model and tools by step, to scale; below, what ran early, or else what a perfect prefetch of pure reads would hide. */
  function timeline(data) {
    const known = data.times.filter((t) => t[1] || t[2]);
    if (!known.length) return h("p.faint.times", {}, "No times were recorded in this trace.");
    const sum = (k) => known.reduce((s, t) => s + (t[k] || 0), 0);
    const [model, tool] = [1, 2].map((k) => sum(k) || (data.times.some((t) => t[k] === null) ? null : 0));
    const hidden = data.times.some((t) => !t[4]) ? sum(3) : null;
    const whole = (model || 0) + (tool || 0) || 1;
    const said = (what, s) => (s === null ? `${what} not known` : `${what} ${seconds(s)}`);
    const W = 1000;
    const svg = h("svg.timeline", { viewBox: `0 0 ${W} 34`, preserveAspectRatio: "none", role: "img", "aria-label": `${said("model", model)}, ${said("tools", tool)}, ${said("what could be hidden:", hidden)}` });
    let x = 0;
    const below = (kind) => kind !== "model" && kind !== "tool";
    const bar = (kind, from, width, t, about) => svg.append(h("rect", { class: kind, x: from, y: below(kind) ? 24 : 4, width: Math.max(width, 0.3), height: below(kind) ? 8 : 18, onclick: () => { location.hash = linkTo(data.key, t[0]); } }, h("title", {}, `step ${t[0]}: ${about}`)));
    const early = data.early || [];
    for (const t of known) {
      const [m, s, y] = [t[1], t[2], t[3]].map((v) => ((v || 0) / whole) * W);
      if (m > 0) bar("model", x, m, t, `model ${seconds(t[1])}`);
      if (s > 0) bar("tool", x + m, s, t, `tools ${seconds(t[2])}${t[3] ? `, ${seconds(t[3])} of it could be hidden` : ""}`);
      if (y > 0 && !early.length) bar("hides", x + m, y, t, `${seconds(t[3])} could be hidden behind the reply`);
      for (const [, tool, after, took, used, saved] of early.filter((e) => e[0] === t[0])) {
        bar(used ? "early used" : "early", x + (after / whole) * W, (took / whole) * W, t, `${tool} ran early, ${seconds(took)}: ${used ? `used, ${seconds(saved)} saved` : "for nothing"}`);
      }
      x += m + s;
    }
    if (early.length) {
      const total = (k, used) => early.filter((e) => e[4] === used).reduce((sum, e) => sum + e[k], 0);
      return h("figure.times", {}, svg, h("figcaption", {}, h("span", {}, h("i.dot.model"), said("model", model)), h("span", {}, h("i.dot.tool"), said("tools", tool)),
        h("span", {}, h("i.dot.used"), `ran early and was used: ${seconds(total(5, true))} saved`), h("span", {}, h("i.dot.early"), `ran early for nothing: ${seconds(total(3, false))}`)));
    }
    return h("figure.times", {}, svg, h("figcaption", {}, h("span", {}, h("i.dot.model"), said("model", model)), h("span", {}, h("i.dot.tool"), said("tools", tool)),
      h("span", {}, h("i.dot.hides"), hidden === null ? "what a prefetch hides is not known" : `a perfect prefetch hides ${seconds(hidden)} (${percent(hidden, whole)})`),
      known.length < data.times.length ? h("span.faint", {}, `times of ${number(data.times.length - known.length)} of ${counted(data.times.length, "step")} are not known`) : null));
  }

  /** One thin mark a step, colored by action. */
  function ribbon(data) {
    const labels = data.labels;
    const svg = h("svg.ribbon", { viewBox: `0 0 ${Math.max(labels.length, 1)} 10`, preserveAspectRatio: "none", role: "img", "aria-label": "the steps, colored by action" });
    labels.forEach((l, n) => svg.append(h("rect", { class: `${l[1] ? `a${meta.actions.indexOf(l[1])}` : "none"}`, x: n, y: 0, width: labels.length > 150 ? 1 : 1 - 0.004 * labels.length, height: l[5] ? 10 : 8 },
      h("title", {}, `step ${l[0]}: ${l[1] || "no step"}${l[5] ? ", failed" : ""}`))));
    svg.addEventListener("click", (e) => {
      const box = svg.getBoundingClientRect();
      const l = labels[Math.min(labels.length - 1, Math.floor(((e.clientX - box.left) / box.width) * labels.length))];
      if (l) location.hash = linkTo(data.key, l[0]);
    });
    return svg;
  }

  function messagesOf(data) {
    const out = [];
    let box = null;
    data.trace.messages.forEach((m, index) => {
      if (m.role === "assistant") { box = stepBox(data, m, index); out.push(box); }
      else if (m.role === "tool" || (m.injected && box)) {
        const shown = observation(m, data.tokensOf.get(index));
        if (box) box.append(shown); else out.push(h("section.message", {}, shown));
      } else { box = null; out.push(messageBox(m, index)); }
    });
    return out;
  }

  const WHO = { environment: "environment", user: "user", demo: "example", model: "model" };

  function messageBox(m, index) {
    const who = m.role === "system" ? "system" : WHO[m.author] || m.author;
    const long = m.content && m.content.length > 700;
    const body = () => [textBlock(m.content || "(empty)", { prose: true, lines: 6, chars: 800 }), partsOf(m)];
    return h("section.message", { class: who, id: `m${index}` }, h("p.who", {}, h("b", {}, who), h("span.faint", {}, ` message ${index} `), m.author === "environment" && who !== "environment" ? chip("environment text") : null, lossChips(m)),
      long && m.role === "system" ? lazy(h("span.oneline", { dir: "auto" }, m.content.slice(0, 220)), body) : body());
  }

  /** What the record says of training on a message; most say nothing. */
  const lossChips = (m) => [m.train === false ? chip("not trained on", "masked") : null, m.train === true ? chip("trained on") : null,
    m.train_weight === undefined || m.train_weight === null ? null : chip(`train weight ${number(m.train_weight, 4)}`, m.train_weight === 0 ? "masked" : "", "what a token of this message counts in the loss")];

  /** Something folded, which is made when it is first opened. */
  function lazy(summary, make, open = false, kind = "") {
    let made = false;
    const fill = () => { if (!made && box.open) { made = true; add(box, [make()]); } };
    const box = h("details.fold", { class: kind, ontoggle: fill }, h("summary", {}, summary));
    if (open) { box.open = true; fill(); }
    return box;
  }

  function partsOf(m) {
    return (m.parts || []).map((p) => h("p.part", {}, `▣ ${p.type} ${p.media_type || ""} ${p.ref || p.sha256 || ""}`.slice(0, 300)));
  }

  function withoutCalls(m) {
    const spans = (m.tool_calls || []).map((c) => c.span).filter(Boolean).sort((a, b) => a[0] - b[0]);
    if (!spans.length) return m.content || "";
    const letters = /[\ud800-\udfff]/.test(m.content) ? Array.from(m.content) : m.content; // spans count characters
    const cut = (a, b) => (typeof letters === "string" ? letters.slice(a, b) : letters.slice(a, b).join(""));
    let at = 0;
    let text = "";
    for (const [a, b] of spans) { text += cut(at, a); at = b; }
    return text + cut(at);
  }

  function stepBox(data, m, index) {
    const label = data.labelOf.get(index);
    const time = data.timeOf.get(index);
    const tokens = data.tokensOf.get(index);
    const action = label?.[1];
    const box = h("section.step", { id: `m${index}`, "data-step": index, class: action ? `a${meta.actions.indexOf(action)}` : "nostep", tabindex: "-1", "aria-label": `step ${index}` },
      h("header", {}, h("a.no", { href: linkTo(data.key, index), title: "a link to this step" }, `#${index}`), h("b.action", {}, action || "no step"),
        label ? h("span.rule", {}, label[2]) : null, label && action ? chip(label[3], `effect ${label[3]}`, "what running it would touch") : null, label?.[5] ? chip("failed", "bad") : null,
        data.flags.filter((f) => f[0] === index).map((f) => chip(`${f[2] ? "cheat" : "mark"}: ${f[1]}`, f[2] ? "bad" : "masked", f[4] ? `${f[3]} ${f[4]}` : f[3])),
        m.author === "demo" ? chip("example") : null, lossChips(m), m.continues ? chip("goes on", "", "the same turn, after a result inside it") : null,
        h("span.grow"), time ? stepTime(time) : null,
        h("span.stepbuttons", {}, h("button.quiet", { type: "button", "aria-label": `raw JSON of message ${index}`, onclick: () => dialog(`Message ${index}`, textBlock(JSON.stringify(m, null, 2), { lines: 400, chars: 60000 })) }, "{ }"),
        copyButton(() => location.href.split("#")[0] + linkTo(data.key, index), "link", `copy a link to step ${index}`))));
    if (m.reasoning) box.append(lazy([h("b", {}, "reasoning "), h("span.oneline", { dir: "auto" }, m.reasoning.slice(0, 200))], () => textBlock(m.reasoning, { prose: true, lines: 60, chars: 12000 }), false, "reasoning"));
    const text = withoutCalls(m).trim();
    if (text) box.append(textBlock(text, { prose: true }));
    add(box, partsOf(m));
    const started = children.get(data.key) || [];
    for (const call of m.tool_calls || []) box.append(callBox(call, started.filter((c) => call.id && rows.parent[c][1] === call.id)));
    if (tokens) box.append(tokenStrip(tokens, m));
    return box;
  }

  function stepTime([, model, tool, hidden, unknown]) {
    if (!model && !tool) return null;
    const about = unknown ? `times are not all known: ${unknown.replaceAll("_", " ")}` : hidden ? `${seconds(hidden)} of the tools' time could be hidden` : "seconds of the model, and of its tools";
    return h("span.steptime", { title: about }, model === null ? null : [h("i.dot.model"), seconds(model)], tool ? [h("i.dot.tool"), seconds(tool)] : null, hidden ? [h("i.dot.hides"), `−${seconds(hidden)}`] : null);
  }

  const LOGPROB_BINS = [-0.05, -0.3, -1, -2.5, -5];
  const TOKENS_AT_ONCE = 300;

  /** How many ids, how likely they were, and each id, the darker the less likely: a record has no texts of tokens. */
  function tokenStrip([, size, mean, prompt, ids, logprobs], m) {
    const sampled = m.role === "assistant" && !m.injected;
    const about = [size ? counted(size, sampled ? "sampled token" : "token") : "no token ids", mean === null ? (sampled ? "no logprobs" : "") : `mean logprob ${mean.toFixed(3)}`, prompt ? `after a prompt of ${number(prompt)}` : "", !sampled || m.train === false ? "not trained on" : ""];
    const token = (n) => {
      const lp = logprobs[n];
      const bin = lp === undefined ? "unknown" : `p${LOGPROB_BINS.findIndex((b) => lp >= b) < 0 ? 5 : LOGPROB_BINS.findIndex((b) => lp >= b)}`;
      return h("i", { class: bin, title: `token ${n}${lp === undefined ? "" : `: logprob ${lp}, ${(100 * Math.exp(lp)).toPrecision(2)}%`}` }, ids[n] ?? "?");
    };
    return lazy(h("span", {}, about.filter(Boolean).join(", ")), () => {
      const known = Math.max(ids.length, logprobs.length);
      const box = h("div.tokens", { dir: "ltr" });
      const put = (upTo) => { for (let n = box.childNodes.length; n < Math.min(upTo, known); n++) box.append(token(n)); };
      put(TOKENS_AT_ONCE);
      const more = known > TOKENS_AT_ONCE ? h("button.more", { type: "button", onclick: () => { put(known); more.remove(); } }, `show ${number(known - TOKENS_AT_ONCE)} more`) : null;
      return h("div", {}, box, more, h("p.faint.small", {}, "Ids, as the record has no texts of tokens. ", logprobs.length ? "Darker is less likely: above 95%, 74%, 37%, 8%, 0.7%, below. " : "", size > known ? `The first ${number(known)} of them.` : ""));
    }, false, "tokenfold");
  }

  // ---- calls ----
  const SHELL = /^(bash|shell|sh|exec|exec_command|local_shell|local_shell_call|execute_bash|run_shell_command|run_command|terminal|run_terminal_cmd|execute_command|container\.exec|developer__shell|cmd)$/i;
  const COMMAND = ["command", "cmd", "script"];
  const OLD_NEW = [["old_str", "new_str"], ["old_string", "new_string"], ["old_text", "new_text"], ["oldText", "newText"], ["oldString", "newString"], ["search", "replace"], ["old_content", "new_content"]];
  const CODE = ["code", "content", "file_text", "text", "source", "input", "patch", "diff", "query", "sql"];

  function shellBlock(text) {
    const block = textBlock(text, { class: "shell", lines: 30, chars: 6000 });
    return block;
  }

  function callBox(call, started) {
    const box = h("div.call", { class: call.error ? "unread" : "" }, h("p.name", {}, h("code", {}, call.name || "(no name)"), call.repairs?.length ? chip(`repaired: ${call.repairs.join(", ")}`) : null,
      call.error ? chip(`not readable, never executed: ${call.error}`, "bad") : null), started.map((c) => h("p.part", {}, "started the subagent ", linkToTrace(c))));
    let args = call.arguments ?? "{}";
    try { args = readJson(args); } catch { /* shown as it is */ }
    if (typeof args === "string") { if (args.trim()) box.append(isPatch(args) ? diffBlock(patchRows(args), args) : textBlock(args)); return box; }
    if (args === null || typeof args !== "object" || Array.isArray(args) || JSON.isRawJSON?.(args)) { box.append(textBlock(JSON.stringify(args, null, 2))); return box; }
    const left = new Map(Object.entries(args));
    const small = h("dl.args");
    const large = [];
    for (const name of COMMAND) {
      const given = left.get(name);
      const parts = Array.isArray(given) && given.every((p) => typeof p === "string") ? given : null;
      const command = parts ? (parts.length > 2 && /^-\w*c$/.test(parts[1]) ? parts.slice(2).join(" ") : parts.join(" ")) : given;
      if (typeof command !== "string" || !(SHELL.test(call.name) || parts || name !== "script") || left.has("path")) continue;
      left.delete(name);
      large.push(isPatch(command) && command.includes("*** Begin Patch") ? diffBlock(patchRows(command), command) : shellBlock(command));
      break;
    }
    const edits = (from) => OLD_NEW.flatMap(([before, after]) => (typeof from[before] === "string" && typeof from[after] === "string" ? [[before, after]] : []));
    for (const [before, after] of edits(args).slice(0, 1)) {
      large.push(diffBlock(compareLines(args[before], args[after]), `${args[before]}\n→\n${args[after]}`));
      left.delete(before);
      left.delete(after);
    }
    if (Array.isArray(args.edits) && args.edits.length && args.edits.every((e) => e && typeof e === "object" && edits(e).length)) {
      left.delete("edits");
      for (const edit of args.edits) { const [[before, after]] = edits(edit); large.push(diffBlock(compareLines(edit[before], edit[after]), `${edit[before]}\n→\n${edit[after]}`)); }
    }
    for (const [name, value] of left) {
      const text = typeof value === "string" ? value : JSON.stringify(value, null, value && typeof value === "object" && JSON.stringify(value).length > 80 ? 2 : 0);
      if (typeof value === "string" && isPatch(value)) large.push(diffBlock(patchRows(value), value));
      else if (text.includes("\n") || text.length > 160 || (CODE.includes(name) && text.length > 60)) large.push(h("p.argname", {}, name), textBlock(text));
      else add(small, [h("dt", {}, name), fillText(h("dd", { dir: "auto" }), text)]);
    }
    if (small.childNodes.length) box.append(small);
    return add(box, large);
  }

  function observation(m, tokens) {
    const text = (m.prefix || "") + (m.content || "");
    const lines = text.split("\n", 400).length;
    const who = m.injected ? "environment, inside the turn" : "result";
    const head = [h("b", {}, m.is_error ? "error " : `${who} `), h("span.oneline", { dir: "auto" }, fillText(h("span"), text.slice(0, 200))), h("span.n", {}, lines > 1 ? `${lines >= 400 ? "400+" : lines} lines` : "", m.tool_s === undefined || m.tool_s === null ? "" : `  ${seconds(m.tool_s)}`), lossChips(m)];
    const kind = `result ${m.is_error ? "error" : ""} ${m.injected ? "injected" : ""}`;
    return lazy(head, () => [textBlock(text || "(empty)", { lines: 60, chars: 12000 }), partsOf(m), tokens ? tokenStrip(tokens, m) : null], false, kind);
  }

  let unfolded = false;
  function foldAll() {
    unfolded = !unfolded;
    for (const fold of document.querySelectorAll("#steps details.fold")) fold.open = unfolded;
    say(unfolded ? "unfolded" : "folded");
  }

  function findInTrace(text) {
    const wanted = text.toLowerCase();
    const found = new Set();
    let box = -1;
    current.trace.messages.forEach((m, index) => {
      if (m.role !== "tool" && !m.injected) box = index;
      const whole = [m.content, m.reasoning, ...(m.tool_calls || []).flatMap((c) => [c.name, c.arguments]), current.labelOf.get(index)?.[1], current.labelOf.get(index)?.[2]];
      if (whole.some((part) => part && part.toLowerCase().includes(wanted))) found.add(`m${box}`);
    });
    for (const node of document.getElementById("steps").children) node.hidden = wanted !== "" && !found.has(node.id);
    say(wanted ? `${found.size} found` : "");
  }

  function goTo(step, focus) {
    const node = document.getElementById(`m${step}`);
    if (!node) return;
    for (const other of document.querySelectorAll(".here")) other.classList.remove("here");
    node.classList.add("here");
    node.hidden = false;
    node.scrollIntoView({ block: "start" });
    if (focus) node.focus({ preventScroll: true });
  }

  // ---- keys ----
  function move(by) {
    if (current) {
      const nodes = [...document.querySelectorAll("#steps > .step:not([hidden])")];
      const now = nodes.findIndex((n) => n.classList.contains("here"));
      const next = nodes[Math.max(0, Math.min(nodes.length - 1, now < 0 ? (by > 0 ? 0 : nodes.length - 1) : now + by))];
      if (next) { history.replaceState(null, "", linkTo(current.key, next.dataset.step)); goTo(next.dataset.step, true); }
      return;
    }
    const links = [...document.querySelectorAll("a.title, .datarow > summary")];
    const now = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, now + by))]?.focus();
  }

  function otherTrace(by) {
    if (!current) return;
    const at = order.indexOf(current.row);
    const next = order[at + by];
    if (at >= 0 && next !== undefined) location.hash = linkTo(rows.name[next]);
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) && e.target.type !== "checkbox") {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const actions = { j: () => move(1), k: () => move(-1), "/": () => document.getElementById("search")?.focus(), "?": showHelp, o: () => current && foldAll(), r: () => current && showRaw(),
      u: () => { location.hash = "="; }, Escape: () => { if (current) location.hash = "="; }, "[": () => otherTrace(-1), "]": () => otherTrace(1) };
    if (!actions[e.key]) return;
    e.preventDefault();
    actions[e.key]();
  });

  // ---- runs: attempts by folder, model and protocol; by problem; by turn ----
  const mean = (values) => { const known = values.filter((v) => v !== null && v !== undefined); return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null; };

  function groupRows(nameOf) {
    const groups = new Map();
    for (let i = 0; i < count; i++) { const name = nameOf(i); if (!groups.has(name)) groups.set(name, []); groups.get(name).push(i); }
    return groups;
  }

  const share = (part, whole) => (whole ? h("span.rate", {}, h("i", { style: { width: `${(100 * part) / whole}%` } }), h("b", {}, percent(part, whole))) : "–");
  const judgedOf = (list) => list.filter((i) => rows.success[i] !== 2);
  const goodOf = (list) => list.filter((i) => rows.success[i] === 1).length;

  async function showRuns() {
    await loadRows();
    document.title = `${meta.folders.join(" · ")} · runs`;
    const two = meta.folders.length > 1;
    const runs = [...groupRows((i) => [two ? meta.folders[rows.run[i]] : null, meta.texts.model[rows.model[i]] || meta.texts.source[rows.source[i]], meta.texts.protocol[rows.protocol[i]]].filter(Boolean).join(" · "))].sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const measures = runs.map(([name, list]) => {
      const tests = list.map((i) => rows.tests[i]).filter(Boolean);
      const erred = list.filter((i) => rows.had_errors[i]).length;
      return [name, list.length, share(goodOf(list), judgedOf(list).length), number(mean(list.map((i) => rows.reward[i])), 3), tests.length ? percent(tests.reduce((s, t) => s + t[0], 0), tests.reduce((s, t) => s + t[1], 0)) : "–",
        list.some((i) => rows.had_errors[i] !== null) ? `${number(erred)}, ${number(list.filter((i) => rows.recovered[i]).length)} recovered` : "–", number(mean(list.map((i) => rows.steps[i])), 1), number(mean(list.map((i) => rows.tokens[i]))), seconds(mean(list.map((i) => rows.model_s[i]))), seconds(mean(list.map((i) => rows.tool_s[i])))];
    });
    const tasks = [...groupRows((i) => rows.task[i])].map(([task, list]) => [meta.texts.task[task], meta.folders.map((_, run) => list.filter((i) => rows.run[i] === run))]).filter(([, by]) => by.some((list) => judgedOf(list).length));
    const rate = (list) => (judgedOf(list).length ? goodOf(list) / judgedOf(list).length : null);
    const key = two ? ([, by]) => -Math.abs((rate(by[0]) ?? 0) - (rate(by[1]) ?? 0)) : ([, by]) => rate(by[0]) ?? 2;
    tasks.sort((a, b) => key(a) - key(b) || (a[0] < b[0] ? -1 : 1));
    const cell = (list) => (list.length ? h("span.row", {}, share(goodOf(list), judgedOf(list).length), h("span.attempts", {}, list.slice(0, 24).map((i) => h("a", { href: linkTo(rows.name[i]), class: SUCCESS[rows.success[i]], title: rows.key[i], "aria-label": `${SUCCESS[rows.success[i]]}: ${rows.key[i]}` }, ["✕", "✓", "?"][rows.success[i]]))), list.length > 24 ? `+${list.length - 24}` : "") : "–");
    const heads = ["problem", ...meta.folders.map((f) => (two ? f : "attempts"))];
    const problems = h("div");
    const line = ([name, by]) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, name), by.map((list) => h("td", {}, cell(list))));
    const putProblems = (words) => {
      const fits = tasks.filter(([name]) => name.toLowerCase().includes(words.toLowerCase()));
      const table = simpleTable("by problem", heads, [], "problems");
      const more = fillInParts(table.querySelector("tbody"), fits, line, 200);
      problems.replaceChildren(fits.length ? table : h("p.empty", {}, "No problem fits."), more);
    };
    const search = h("input#search", { type: "search", placeholder: "search problems  ( / )", "aria-label": "search problems", oninput: (e) => putProblems(e.target.value) });
    putProblems("");
    const turnTable = (turns, name) => turns.length ? h("div", {}, two ? h("h3", {}, name) : null, simpleTable(`by turn${two ? `, ${name}` : ""}`, ["turn", "attempts", "tokens", "model", "tools"], turns.map(([n, tokens, model, tool], at) => [at + 1, number(n), number(tokens), seconds(model), seconds(tool)]))) : null;
    main().replaceChildren(h("div.part-page", {}, h("h1", {}, "Runs"),
      h("section.panel", {}, h("h2", {}, "By model and protocol"), simpleTable("by model and protocol", ["run", "traces", "succeeded", "mean reward", "tests passed", "with errors", "steps", "tokens", "model", "tools"], measures, "runs"), h("p.faint.small", {}, "Steps, tokens and seconds are means of an attempt, over those of which they are known; success is of those that were judged.")),
      tasks.length ? h("section.panel", {}, h("h2", {}, two ? "By problem, the greatest difference first" : "By problem, the hardest first", h("span.sub", {}, counted(tasks.length, "problem"))), tasks.length > 20 ? search : null, problems) : null,
      h("section.panel", {}, h("h2", {}, "By turn"), h("div.turns", {}, meta.turns.map((turns, run) => turnTable(turns, meta.folders[run]))), h("p.faint.small", {}, "Means of a turn: tokens written, seconds of the model and of the tools."))));
  }

  // ---- a dataset ----
  const VERDICTS = { pass: "✓", fail: "✕", undecided: "?", removed: "−" };

  /** A table whose first column names the rows. */
  const simpleTable = (about, heads, lines, kind = "") => h("div.scroll", {}, h("table.simple", { class: kind, "aria-label": about }, h("thead", {}, h("tr", {}, heads.map((t, n) => h("th", { scope: "col", class: n ? "num" : "" }, t)))),
    h("tbody", {}, lines.map((line) => h("tr", {}, line.map((cell, n) => h(n ? "td" : "th", { class: n && typeof cell !== "object" ? "num" : "", scope: n ? null : "row", dir: "auto" }, typeof cell === "number" ? number(cell) : cell)))))));

  function bars(pairs, color) {
    const sum = pairs.reduce((s, [, n]) => s + n, 0); // all bars of a page have one scale: the share that stands beside them
    return h("ul.bars", {}, pairs.map(([name, n], place) => h("li", {}, h("span.name", { dir: "auto" }, name), h("span.track", {}, h("i", { class: color ? color(name, place) : "", style: { width: `${(100 * n) / (sum || 1)}%` } })), h("span.n", {}, number(n)), h("span.n", {}, percent(n, sum)))));
  }

  const actionClass = (name) => `a${meta.actions.indexOf(name)}`;

  /** Rows by length of the prompt, in bars of equal width that are alike for all configs. */
  function promptLengths(by) {
    const each = Math.ceil(Math.max(...by.map(([, bins]) => bins.length)) / 24);
    const wide = each * meta.tokens_per_bin;
    const bars = by.map(([name, bins]) => [name, bins.reduce((sum, n) => sum + n, 0), Array.from({ length: 24 }, (_, at) => bins.slice(at * each, (at + 1) * each).reduce((sum, n) => sum + n, 0))]);
    const most = Math.max(...bars.flatMap(([, of, counts]) => counts.map((n) => n / of)));
    return bars.map(([name, of, counts]) => [h("h3", {}, name, h("span.sub", {}, counted(of, "row"))), h("figure.histogram", {},
      h("svg", { viewBox: "0 0 240 60", preserveAspectRatio: "none", role: "img", "aria-label": `prompt lengths of ${name}` }, counts.map((n, at) => h("rect.model", { x: at * 10 + 0.5, y: 60 - (58 * n) / of / most, width: 9, height: (58 * n) / of / most }, h("title", {}, `${number(at * wide)} to ${counted((at + 1) * wide, "token")}: ${n}`)))),
      h("figcaption.row", {}, h("span.grow", {}, "0"), h("span", {}, counted(24 * wide, "token"))))]);
  }

  function showOverview() {
    const m = meta.manifest;
    document.title = `${meta.title} · dataset`;
    const splits = ["train", "validation", "test"];
    const lengths = Object.entries(m.prompt_tokens || {});
    const verdicts = {};
    for (const gate of m.gates) verdicts[gate.verdict] = (verdicts[gate.verdict] || 0) + 1;
    const section = (title, ...content) => h("section.panel", {}, h("h2", {}, title), content);
    const gates = m.gates.map((gate, n) => h("tr", { class: gate.verdict }, h("td", {}, h("b.verdict", { class: gate.verdict }, VERDICTS[gate.verdict] || "", " ", gate.verdict)), h("th", { scope: "row" }, gate.name),
      h("td", {}, h("span.small", {}, meta.figures[n]), gate.rows?.length ? h("div.small.faint", {}, gate.rows.join(", ")) : null)));
    main().replaceChildren(h("div.part-page", {},
      h("section.head", {}, h("h1", {}, meta.title), meta.demonstration ? h("p.notice", {}, meta.demonstration) : null,
        h("p.row", {}, chip(counted(m.counts.traces, "trace")), chip(counted(m.inputs.groups, "group")), chip(counted(m.counts.steps, "step")), chip(`target ${m.settings.target}`), chip(`up to ${counted(m.settings.max_context_tokens, "token")}`),
          Object.entries(verdicts).map(([verdict, n]) => chip(`${VERDICTS[verdict] || ""} ${n} ${verdict}`, { pass: "success", fail: "bad", undecided: "masked" }[verdict] || ""))),
        (m.warnings || []).map((w) => h("p.notice", {}, w)), meta.left_out ? h("p.bad", {}, `The texts of ${counted(meta.left_out, "row")} are left out of this file.`) : null),
      h("div.panels", {},
        section("Rows", simpleTable("rows by config and split", ["config", ...splits], Object.entries(m.configs).map(([name, by]) => [h("span", {}, meta.rows[name] ? h("a", { href: `#=${name}` }, name) : name, h("span.sub", {}, withCode(meta.about[name] || ""))), ...splits.map((s) => by[s]?.rows ?? "–")]))),
        section("Actions", simpleTable("actions by split", ["action", ...splits], meta.actions.map((a) => [h("span", {}, h("i.dot", { class: actionClass(a) }), a), ...splits.map((s) => m.actions[s]?.[a] ?? 0)])),
          splits.map((s) => h("p.splitbar", {}, h("span.n", {}, s), shareBar(meta.actions.map((a) => m.actions[s]?.[a] ?? 0), true)))),
        lengths.length ? section("Prompt lengths", promptLengths(lengths), h("p.faint.small", {}, "of all rows; bars are shares of the rows, on one scale")) : null,
        section("Pairs", Object.keys(m.families).length ? [bars(Object.entries(m.families)), h("h3", {}, "by strength"), bars(Object.entries(m.strengths || {})),
          Object.keys(meta.difficulty).length ? [h("h3", {}, "by difficulty"), simpleTable("difficulty of pairs by family", ["family", "a shallow model gets right"], Object.entries(meta.difficulty).map(([name, text]) => [name, h("span.small", {}, text)])), h("p.faint.small", {}, "It sees only counts, places and overlaps: so much of a family is easy. A 99% interval by groups.")] : null] : h("p.faint", {}, "none")),
        meta.predictions.length ? section("Predictions", meta.predictions.map(predictionSummary)) : null,
        section("Where it comes from", bars(Object.entries(m.sources)), h("h3", {}, "licenses"), bars(Object.entries(m.licenses || {}))),
        section("Dropped", Object.entries(m.drops).map(([name, reasons]) => [h("h3", {}, name), Object.keys(reasons).length ? bars(Object.entries(reasons)) : h("p.faint", {}, "none")]))),
      meta.results.map((r) => section(r.kind === "score" ? "Score" : "Replay", h("h3", {}, r.name, r.found.predictor ? ` (${r.found.predictor})` : ""), r.kind === "score" ? scoreResult(r.found) : replayResult(r.found))),
      h("section.panel", {}, h("h2", {}, `Gates`), h("div.scroll", {}, h("table.simple.gates", { "aria-label": "gates" }, h("tbody", {}, gates)))),
      h("section.panel", {}, h("h2", {}, "Settings"), h("dl.facts", {}, Object.entries(m.settings).map(([k, v]) => fact(k.replaceAll("_", " "), v === null ? "none" : Array.isArray(v) ? v.join(" / ") || "all" : String(v))), fact("prompt length", `counted by ${m.token_counter}`), Object.entries(m.versions).map(([k, v]) => fact(k, v))),
        h("h3", {}, "instruction of every prompt"), textBlock(m.instruction, { prose: true }))));
  }

  function predictionSummary(p, n) {
    const rows = meta.manifest.configs.eval?.test?.rows || 0;
    return h("div", {}, h("h3", {}, p.name, p.predictor && p.predictor !== p.name ? ` (${p.predictor})` : ""),
      h("p.row", {}, chip(`${percent(p.right, p.found)} right action`), chip(`${percent(p.right_call, p.found)} right call`), chip(`shares of the ${number(p.found)} rows with a guess, of ${counted(rows, "row")}; a row without calls has no right call`), Object.entries(p.problems).map(([k, v]) => chip(`${k.replaceAll("_", " ")} ${v}`, "bad"))),
      confusion(p, n), reliability(n));
  }

  /** Gold by guess; a cell lists its rows. */
  function confusion(p, n) {
    const guesses = [...meta.actions, ...new Set(p.confusion.map((c) => c[1]).filter((g) => !meta.actions.includes(g)))];
    const by = new Map(p.confusion.map(([gold, guess, k]) => [`${gold}\n${guess}`, k]));
    const golds = meta.actions.filter((a) => p.confusion.some((c) => c[0] === a));
    return h("div.scroll", {}, h("table.confusion", {}, h("caption.faint", {}, "gold (rows) by guess (columns)"), h("thead", {}, h("tr", {}, h("td"), guesses.map((g) => h("th", { scope: "col" }, h("span", {}, g))))),
      h("tbody", {}, golds.map((gold) => {
        const sum = guesses.reduce((s, g) => s + (by.get(`${gold}\n${g}`) || 0), 0);
        return h("tr", {}, h("th", { scope: "row" }, gold), guesses.map((guess) => {
          const k = by.get(`${gold}\n${guess}`) || 0;
          const cell = h("td", { class: guess === gold ? "right" : "" });
          if (k) add(cell, [h("i", { style: { opacity: 0.15 + (0.85 * k) / sum } }), h("button", { type: "button", title: `${gold} taken for ${guess}: ${k}`, onclick: () => { Object.assign(listState, { gold, guess, file: n, config: "eval" }); location.hash = "=eval"; } }, k)]);
          return cell;
        }));
      }))));
  }

  /** Share that is right by what the predictor believed. */
  function reliability(n) {
    const known = (meta.rows.eval || []).map((r) => r.guesses?.[n]).filter((g) => g && g[3] !== null);
    if (known.length < 10) return null;
    const bins = Array.from({ length: 10 }, () => []);
    for (const g of known) bins[Math.min(9, Math.floor(g[3] * 10))].push(g);
    const points_ = bins.map((bin, at) => [mean(bin.map((g) => g[3])), mean(bin.map((g) => (g[1] ? 1 : 0))), `confidence ${at / 10} to ${(at + 1) / 10}: ${bin.filter((g) => g[1]).length} of ${bin.length} right`, bin.length]);
    return add(h("div.reliability"), [reliabilityChart(points_.filter((p) => p[3]), "right action")]);
  }

  /** Points (confidence, share right, title, n). */
  const reliabilityChart = (given, what) => curve(`reliability: ${what} by confidence, over ${counted(given.reduce((sum, p) => sum + p[3], 0), "guess", "guesses")}`, { diagonal: true, points: given }, [1, 1], "confidence", `${what}; numbers: guesses; dashed: as it says`);

  // ---- what `score` and `replay` wrote ----
  const points = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));
  const withInterval = (row) => (row && row.value !== null ? h("span.estimate", {}, `${points(row.value)}%`, h("span.sub", {}, `[${points(row.low)}, ${points(row.high)}]`)) : "–");
  const DECISIVE = [["action type", "natural", "type_accuracy"], ["macro-F1", "natural", "macro_f1"], ["tool", "natural", "tool"], ["exact call", "natural", "exact_call"], ["in 3 guesses", "natural", "exact_call@3"], ["exact, safe early", "eligible", "exact_call"]];

  /** A line of points (x, y, title, and what stands above it) from 0 to `most` of each; a level is dashed. */
  function curve(about, given, most, xName, yName) {
    const x = (v) => 44 + (340 * v) / (most[0] || 1);
    const y = (v) => 160 - (144 * v) / (most[1] || 1);
    const tick = (v) => `${Number((100 * v).toPrecision(2))}%`;
    return h("figure.chart", {}, h("svg", { viewBox: "0 0 400 196", role: "img", "aria-label": about },
      [0, 0.5, 1].map((part) => [h("path.grid", { d: `M${x(0)} ${y(part * most[1])} H${x(most[0])}` }), h("text.tick.end", { x: 40, y: y(part * most[1]) + 4 }, tick(part * most[1])), h("text.tick.middle", { x: x(part * most[0]), y: 175 }, tick(part * most[0]))]),
      h("text.tick.middle", { x: x(most[0] / 2), y: 191 }, xName), h("text.tick", { x: 44, y: 10 }, yName),
      given.diagonal ? h("path.diagonal", { d: `M${x(0)} ${y(0)} L${x(most[0])} ${y(most[1])}` }) : null,
      given.level === undefined ? null : h("path.diagonal", { d: `M${x(0)} ${y(given.level)} H${x(most[0])}` }),
      h("path.curve", { d: given.points.map(([a, b], n) => `${n ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join(" ") }),
      given.points.map(([a, b, title, above]) => [h("circle.model", { cx: x(a), cy: y(b), r: 3.5 }, h("title", {}, title)), above ? h("text.tick.middle", { x: x(a), y: y(b) + (y(b) < 26 ? 15 : -7) }, number(above)) : null])));
  }

  function scoreResult(found) {
    const lines = [[found.predictor || "this file", found.scores], ...(found.against ? [[found.against.predictor || found.against.other, found.against.scores]] : []), ...found.references.map((r) => [`${r.predictor} (reference)`, r.scores])];
    const tables = lines.map(([name, scores]) => [name, new Map(scores.map((row) => [`${row.slice} ${row.metric}`, row]))]);
    const columns = DECISIVE.filter(([, slice, metric]) => tables.some(([, by]) => by.has(`${slice} ${metric}`)));
    const calibration = found.calibration?.at(-1);
    return [h("p.row", {}, chip(counted(found.rows, "eval step")), chip(counted(found.tasks, "task")), found.missing ? chip(`${number(found.missing)} without a prediction`, "bad") : null, Object.entries(found.problems).map(([k, v]) => chip(`${k.replaceAll("_", " ")} ${v}`, "bad"))),
      simpleTable("scores", ["predictor", ...columns.map(([title]) => title)], tables.map(([name, by]) => [name, ...columns.map(([, slice, metric]) => withInterval(by.get(`${slice} ${metric}`)))])),
      found.against?.differences.length ? [h("h3", {}, "better by, in points"), simpleTable("better by, in points", ["figure", "difference"], found.against.differences.map((d) => [`${d.metric.replaceAll("_", " ")}, ${d.slice}`, h("span", {}, points(d.value), h("span.sub", {}, `[${points(d.low)}, ${points(d.high)}]`))]))] : null,
      calibration ? [h("h3", {}, `is a confidence what it says? (of the ${calibration.of}; calibration error ${points(calibration.ece)} points)`),
        reliabilityChart(calibration.bins.filter((b) => b.n).map((b) => [b.confidence, b.right, `confidence ${points(b.low)} to ${points(b.high)}%: ${points(b.right)}% of ${b.n} right`, b.n]), `right ${calibration.of}`),
        h("h3", {}, "how much may be taken, by how much of it may be wrong"), simpleTable("how much may be taken", ["wrong at most", "taken", "confidence from"], calibration.coverage.map((c) => [`${points(c.risk)}%`, `${points(c.coverage)}%`, c.threshold === null ? "–" : c.threshold.toPrecision(3)]))] : null,
      found.verifier ? [h("h3", {}, `the verifier ${found.verifier.verifier || ""}`), simpleTable("what the verifier accepts", ["policy", "accepts", "precision", "recall"], found.verifier.policies.map((p) => [p.precision_wanted === null ? p.policy : `${p.policy}, precision ${points(p.precision_wanted)}%`, `${points(p.accepted)}%`, `${points(p.precision)}%`, `${points(p.recall)}%`]))] : null];
  }

  function replayResult(found) {
    const base = found.base_s || 1;
    const line = found.frontier.map((p) => [p.wasted_s / base, p.share || 0, `${p.threshold === null ? "all guesses" : `from ${p.threshold.toPrecision(3)}`}: saves ${points(p.share)}%, wastes ${seconds(p.wasted_s)} of tools; ${number(p.launched)} launched, ${number(p.hits)} used`]);
    const most = [Math.max(...line.map((p) => p[0]), 0.001), Math.max(...line.map((p) => p[1]), found.oracle.share || 0, 0.001)];
    return [h("p", {}, found.verdict === "unknown" || !found.base_s ? `What is saved is not known: times are known of ${number(found.known_steps)} of ${counted(found.steps, "step")} with a prediction.` : [h("b", {}, `saves ${points(found.share)}%`), ` [${points(found.low)}, ${points(found.high)}] of ${seconds(found.base_s)}; a perfect predictor ${points(found.oracle.share)}%`]),
      h("p.row", {}, chip(`${number(found.launched)} launched early`), chip(`${number(found.hits)} used`, found.hits ? "success" : ""), chip(`${seconds(found.wasted_s)} of tools wasted`), found.stale ? chip(`${number(found.stale)} overtaken by a write`, "bad") : null, chip(`times known of ${points(found.coverage)}%`)),
      line.length > 1 && found.base_s ? curve(`frontier: time saved by time wasted, over ${line.length} thresholds; a perfect predictor saves ${points(found.oracle.share)}%`, { points: line, level: found.oracle.share || 0 }, most, "tool time wasted, of all the time", "time saved; dashed: by a perfect predictor") : null,
      simpleTable("what is saved, by threshold", [found.gate ? `${found.gate} from` : "guesses", "launched", "used", "saves", "wastes"], found.frontier.map((p) => [p.threshold === null ? "all" : p.threshold.toPrecision(3), p.launched, p.hits, `${points(p.share)}%`, seconds(p.wasted_s)])),
      found.assumed.map((a) => h("p.faint.small", {}, `assumed: ${a.text} (${number(a.count)})`))];
  }

  const listState = { config: "", split: "", action: "", gold: "", guess: "", file: 0, family: "", q: "", sort: "as stored" };

  function choose(label, name, options) {
    const box = h("select", { "aria-label": label, "data-control": name, onchange: (e) => { listState[name] = e.target.value; keepFocus(() => showRows(listState.config)); } }, options.map(([value, text]) => h("option", { value, selected: listState[name] === value }, text)));
    return options.length > 2 ? box : null;
  }

  function showRows(config) {
    if (listState.config !== config) Object.assign(listState, { config, split: "", action: "", gold: "", guess: "", family: "", q: "", hits: null, sort: "as stored" });
    document.title = `${meta.title} · ${config}`;
    const all = meta.rows[config] || [];
    const values = (name) => [...new Set(all.map((r) => r[name]).filter((v) => v !== undefined))].sort();
    const files = meta.predictions;
    const right = (r, n = 0) => r.guesses?.[n]?.[1];
    const confidence = (r, n) => r.guesses?.[n]?.[3] ?? null;
    const sorts = { "as stored": () => 0 };
    files.forEach((file, n) => {
      const of = files.length > 1 ? `: ${file.name}` : "";
      sorts[`most sure and wrong${of}`] = (a, b) => (right(a, n) ? 1 : 0) - (right(b, n) ? 1 : 0) || (confidence(b, n) ?? -1) - (confidence(a, n) ?? -1);
      sorts[`most sure${of}`] = (a, b) => (confidence(b, n) ?? -1) - (confidence(a, n) ?? -1);
      sorts[`least sure${of}`] = (a, b) => (confidence(a, n) ?? 2) - (confidence(b, n) ?? 2);
    });
    if (files.length > 1) sorts["files disagree"] = (a, b) => (right(a) === right(a, 1) ? 1 : 0) - (right(b) === right(b, 1) ? 1 : 0);
    const guessOf = (r) => (r.guesses ? r.guesses[listState.file]?.[0] ?? "(none)" : undefined);
    const words = wordsOf(listState.q);
    const fits = all.filter((r, n) => (!listState.split || r.split === listState.split) && (!listState.action || r.action === listState.action) && (!listState.family || r.family === listState.family) &&
      (!listState.gold || r.action === listState.gold) && (!listState.guess || guessOf(r) === listState.guess) && (!words.length || listState.hits?.has(n) || hasWords(`${r.key} ${r.tool || ""} ${r.arguments || ""} ${r.rule || ""} ${r.action}`, words)));
    if (config === "eval" && files.length) fits.sort(sorts[listState.sort] || sorts["as stored"]);
    const search = searchBox("rows", listState, () => all.map((r) => (r.piece < 0 ? null : [`${config}-${r.piece}`, r.place])), () => keepFocus(() => showRows(config)));
    const total = Object.values(meta.manifest.configs[config]).reduce((s, by) => s + by.rows, 0);
    const list = h("div#rows");
    const more = fillInParts(list, fits, (r) => datasetRow(config, r));
    main().replaceChildren(h("div.part-page", {}, h("h1.visually-hidden", {}, `Rows of ${config}`), h("p.count", {}, h("b", {}, counted(fits.length, "row")), h("span", {}, `of ${number(total)} in ${config}`), h("span", {}, withCode(meta.about[config] || "")), searchNote(listState)),
      h("div.controls", {}, search, choose("split", "split", [["", "all splits"], ...values("split").map((v) => [v, v])]), choose("action", "action", [["", "all actions"], ...meta.actions.filter((a) => values("action").includes(a)).map((v) => [v, v])]),
        choose("family", "family", [["", "all families"], ...values("family").map((v) => [v, v])]), config === "eval" && files.length ? choose("order", "sort", Object.keys(sorts).map((s) => [s, s])) : null,
        listState.gold || listState.guess ? h("button", { type: "button", onclick: () => { Object.assign(listState, { gold: "", guess: "" }); showRows(config); } }, `✕ ${listState.gold} taken for ${listState.guess} by ${files[listState.file]?.name}`) : null),
      fits.length ? list : h("p.empty", {}, "No row fits these filters."), more));
  }

  function datasetRow(config, r) {
    const marks = (r.guesses || []).map((g, n) => h("span.guessline", {}, h("span.faint.oneline", {}, meta.predictions[n].name), h("span.guess", { class: g ? (g[1] ? "good" : "bad") : "" }, g ? `${g[1] ? "✓" : "✕"} ${g[0] ?? "(none)"}${g[3] === null ? "" : ` ${(g[3] * 100).toFixed(0)}%`}` : "– none"),
      g && g[4] ? [callLine(g[4], g[5]), h("span.guess", { class: g[2] ? "good" : "bad" }, g[2] ? "✓ call" : "✕ call")] : null));
    const head = [h("i.dot", { class: actionClass(r.action) }), h("b", {}, r.action), r.rejected_action ? h("span", {}, `not ${r.rejected_action}`) : null, r.family ? chip(`${r.family}, ${r.strength}`) : null, r.tool ? callLine(r.tool, r.arguments) : h("span.grow"),
      h("span.oneline.key", { title: r.key }, `${r.key} #${r.step}`), h("span.n", {}, r.split), marks];
    const box = h("details.fold.datarow", { ontoggle: () => { if (box.open && box.childNodes.length === 1) openRow(config, r, box).catch(fail); } }, h("summary", {}, head));
    return box;
  }

  /** A call on one line; its arguments may be cut. */
  const callLine = (tool, args) => h("code.oneline.grow", { dir: "auto", title: args }, `${tool} ${args && args !== "{}" ? args : ""}`);

  async function openRow(config, r, box) {
    if (r.piece < 0) { box.append(h("p.faint", {}, "The texts of this row are left out of this file.")); return; }
    const texts = (await load(`${config}-${r.piece}`))[r.place];
    const answers = texts.chosen ? pairBlock(texts) : h("div.answer", {}, h("h2", {}, config === "eval" ? "gold" : "completion"), texts.completion.map(([, text]) => textBlock(pretty(text))));
    const guesses = (texts.guesses || []).map((g, n) => g && h("div.answer", {}, h("h2", {}, meta.predictions[n].name, " ", chip(g.right ? "right action" : "wrong action", g.right ? "success" : "bad"), g.right_call ? chip("right call", "success") : null, g.others ? chip(counted(g.others, "more guess", "more guesses")) : null, g.right_call ? null : h("span.faint.small", {}, " − gold, + guess")),
      g.right && g.right_call ? null : diffBlock(compareLines(pretty(texts.completion[0][1]), prettyGuess(g)), prettyGuess(g))));
    const [before, trained] = texts.rendered || [];
    const rendered = texts.rendered ? lazy([h("b", {}, "as the chat template renders it"), h("span.n", {}, `loss on ${counted(trained.length, "character")}`)], () => h("div", {}, textBlock(before, { lines: 40, chars: 6000 }), h("mark.trained", {}, textBlock(trained)))) : null;
    add(box, [h("p.row.small", {}, h("span.faint", {}, r.rule || ""), copyButton(() => r.key, "copy key")), answers, guesses, rendered, h("h2", {}, "prompt"), texts.prompt.map(([role, text], at) => promptMessage(role, text, at, texts.prompt.length))]);
  }

  function prettyGuess(g) {
    if (g.action === null && g.text) return g.text;
    const calls = g.calls.map(([tool, args]) => { let value = args; try { value = readJson(args); } catch { /* as it is */ } return { tool, arguments: value }; });
    const [first, ...more] = calls.length ? calls : [{ tool: null, arguments: {} }];
    return writeReadable({ action: g.action, tool: first.tool, arguments: first.arguments, ...(more.length ? { more } : {}) });
  }

  const CUT = /\[\d+ (?:characters|earlier messages?) left out\]/g;

  function promptMessage(role, text, at, of) {
    const block = () => textBlock(text, { prose: true, lines: 40, chars: 6000 });
    const cuts = text.match(CUT);
    return lazy([h("b", {}, role), cuts ? h("mark.cut", {}, cuts.join(" ")) : null, h("span.oneline", { dir: "auto" }, text.slice(0, 200)), h("span.n", {}, counted(text.length, "character"))], block, at === of - 1);
  }

  /** Chosen and rejected beside one another: lines that differ marked, and in lines that are alike the words. */
  function pairBlock(texts) {
    const [a, b] = [texts.chosen, texts.rejected].map((messages) => pretty(messages.map(([, text]) => text).join("\n")));
    const lines = compareLines(b, a);
    const words = new Map();
    for (let at = 0; at < lines.length; ) { // the k-th line taken out of a place stands against the k-th put into it
      const block = [];
      while (at < lines.length && lines[at][0] !== " ") block.push(lines[at++]);
      const [out, into] = ["-", "+"].map((mark) => block.filter(([m]) => m === mark));
      out.slice(0, into.length).forEach((row, n) => {
        const found = compareWords(row[1], into[n][1]);
        if (found) { words.set(row, found[0]); words.set(into[n], found[1]); }
      });
      if (!block.length) at++;
    }
    const shown = (row) => (words.has(row) ? add(h("span", { dir: "auto" }), words.get(row).map(([differs, text]) => (differs ? fillText(h("mark.word"), text) : fillText(h("span"), text)))) : fillText(h("span", { dir: "auto" }), row[1]));
    const side = (name, mark, kind) => h("div", {}, h("h2", {}, name), h("div.diff.text", {}, lines.filter(([m]) => m === " " || m === mark).map((row) => h("div.line", { class: row[0] === mark ? kind : "" }, h("span.mark", {}, row[0] === mark ? mark : ""), shown(row)))));
    return h("div.pair", {}, side("chosen", "+", "added"), side("rejected", "-", "removed"));
  }

  // ---- start ----
  const parts = {};

  async function show() {
    const place = await readPlace();
    state.tab = place.tab ?? "";
    if (place.row === undefined) current = null;
    const tabs = Object.entries(parts).filter(([, part]) => !part.when || part.when()).map(([name, part]) => [name, part.label]);
    showTop(tabs.length > 1 ? tabs : []);
    if (place.row !== undefined) await showTrace(place.row, place.step);
    else if (place.missing !== undefined) main().replaceChildren(h("p.empty", {}, `There is no ${meta.kind === "traces" ? "trace" : "part"} ${place.missing} here. `, h("a", { href: "#=" }, parts[""].label)));
    else { (parts[place.tab] || parts[""]).show(); scrollTo(0, 0); }
  }

  function fail(error) {
    main().replaceChildren(h("p.empty.bad", {}, String(error.message || error)));
  }

  async function start() {
    try { const kept = localStorage.getItem("foretrace-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* none */ }
    meta = await load("meta");
    if (meta.kind === "traces") {
      parts[""] = { label: "all traces", show: showList };
      parts.runs = { label: "runs", show: () => showRuns().catch(fail) };
      if (meta.chunks) takeRows(await load("index-0"));
      else for (const name of ["key", "reward", "started", "steps", "success", "actions"]) rows[name] = [];
    }
    if (meta.kind === "dataset") {
      parts[""] = { label: "overview", show: showOverview };
      for (const name of Object.keys(meta.rows)) parts[name] = { label: name, show: () => showRows(name) };
    }
    addEventListener("hashchange", () => show().catch(fail));
    await show();
    if (meta.kind === "traces" && loaded < meta.chunks) {
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); // the first rows are seen first
      await loadRows();
      if (!current) refresh();
    }
  }

  document.addEventListener("DOMContentLoaded", () => start().catch(fail));
  return { take, load, parts, h, add, main, number, percent, seconds, textBlock, diffBlock, compareLines, compareWords, writeReadable, fillText, shareBar, chip, dialog, copyButton, get meta() { return meta; }, get rows() { return rows; }, get order() { return order; }, linkTo };
})();
