"""What a page owes to those who do not see it, or do not use a mouse: scripts that list what is wrong, run in it."""

from __future__ import annotations

UNNAMED = """() => [...document.querySelectorAll("button, a[href], input, select, summary, [role=img]")]
  .filter((e) => e.checkVisibility())
  .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.title || e.labels?.[0]?.textContent.trim()))
  .map((e) => e.outerHTML.slice(0, 120))"""
"""Controls and pictures that a screen reader has no words for."""

TABLES = """() => [...document.querySelectorAll("table")].filter((t) => !t.caption && !t.ariaLabel)
  .map((t) => t.outerHTML.slice(0, 120))"""
"""Tables without a name."""

HEADINGS = """() => {
  const shown = [...document.querySelectorAll("h1, h2, h3, h4")].filter((e) => e.checkVisibility());
  const levels = [0, ...shown.map((e) => Number(e.tagName[1]))];
  const gaps = shown.filter((e, n) => levels[n + 1] > levels[n] + 1).map((e) => `${e.tagName} ${e.textContent}`);
  return levels[1] === 1 ? gaps : ["no h1 first", ...gaps];
}"""
"""Levels that are left out between two headings."""

CONTRAST = """() => {
  const linear = (v) => (v <= 0.04045 * 255 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const read = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.e-]+/g).map(Number);
    return [text.startsWith("color(") ? [r * 255, g * 255, b * 255] : [r, g, b], a];
  };
  const over = ([top, alpha], below) => below.map((v, n) => v * (1 - alpha) + top[n] * alpha);
  const bad = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const at = node.parentElement;
    if (!node.textContent.trim() || at.closest("svg, .visually-hidden, .skip")) continue;
    if (!at.checkVisibility({ opacityProperty: true })) continue;
    const line = [];
    for (let e = at; e; e = e.parentElement) line.unshift(getComputedStyle(e));
    const alpha = line.reduce((product, s) => product * s.opacity, 1);
    const below = line.reduce((color, s) => over(read(s.backgroundColor), color), [255, 255, 255]);
    const [ink, own] = read(line.at(-1).color);
    const two = [light(over([ink, own * alpha], below)), light(below)].sort((a, b) => b - a);
    const ratio = (two[0] + 0.05) / (two[1] + 0.05);
    const words = node.textContent.trim().slice(0, 30);
    if (ratio < 4.5) bad.set(`${at.tagName}.${at.className}`, `${ratio.toFixed(2)} ${words}`);
  }
  return [...bad].map((found) => found.join(" "));
}"""
"""Texts with less contrast than 4.5 to 1."""

CHECKS = {"unnamed": UNNAMED, "tables": TABLES, "headings": HEADINGS, "contrast": CONTRAST}
