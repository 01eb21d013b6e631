// Owns the keyboard: letters that press what a page offers, and moving among rows. Inactive while somebody types.
import { announce, copy, toast } from "./app.js";

const letters = document.documentElement.dataset.letters === "on";
let going = 0;

function typing(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(checkbox|radio|button)$/.test(target.type);
}

function rows() {
  return [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
}

export function step(by) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => row.contains(document.activeElement) || row.getAttribute("aria-selected") === "true");
  const next = all[Math.min(Math.max(now + by, 0), all.length - 1)] ?? all[0];
  for (const row of all) row.tabIndex = row === next ? 0 : -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function row() {
  return document.activeElement?.closest("[data-row]");
}

function press(element) {
  if (element.disabled) return;
  element.focus();
  element.click();
}

const ALWAYS = {
  "?": () => document.getElementById("overlay").showModal(),
  "/": () => document.getElementById("search").focus(),
  ".": () => document.querySelector("#actions a, #actions button, #actions summary")?.focus(),
  j: () => step(1),
  k: () => step(-1),
  x: () => row()?.querySelector("input[type=checkbox]")?.click(),
  c: () => copy(location.href).then(() => { toast("Link copied"); announce("Link copied"); }),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || typing(event.target)) {
    if (event.key === "Escape" && typing(event.target)) event.target.blur();
    return;
  }
  const tree = event.target.closest?.("[role=treegrid]"); // it has arrows of its own
  if (!tree && event.key === "ArrowDown" && row()) { event.preventDefault(); step(1); return; }
  if (!tree && event.key === "ArrowUp" && row()) { event.preventDefault(); step(-1); return; }
  if (!tree && event.key === "ArrowRight" && row() === event.target || event.key === "Enter" && row() === event.target) {
    const link = row().querySelector("a[href]");
    if (link) { event.preventDefault(); press(link); }
    return;
  }
  if (event.key === "Escape" || (!tree && event.key === "ArrowLeft" && row() === event.target)) {
    const back = document.querySelector("[data-back]");
    if (back) { event.preventDefault(); press(back); }
    return;
  }
  if (!letters || event.key.length !== 1) return;
  if (going && performance.now() - going < 1500) {
    going = 0;
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (event.key === "g") { going = performance.now(); return; }
  const wanted = document.querySelector(`main [data-key="${CSS.escape(event.key)}"]`);
  if (wanted) { event.preventDefault(); press(wanted); return; }
  if (ALWAYS[event.key]) { event.preventDefault(); ALWAYS[event.key](); }
});
