// Owns the journal and the step's panel of one session's page: choosing a step without loading the page anew, moving
// among rows, folding runs, more steps as one scrolls, and rows that change while an agent works.
import { dress } from "./app.js";
import { fetched, put, soon } from "./live.js";

const main = document.getElementById("main");
const split = document.getElementById("split");
const grid = document.getElementById("journal");
const panel = document.getElementById("panel");
const stale = new Set();
let latest = 0;

// --- rows ---

const shown = () => (grid ? [...grid.querySelectorAll("[data-row]")].filter((row) => !row.hidden) : []);
const steps = () => (grid ? [...grid.querySelectorAll("[data-step]")] : []);

function rove(row) {
  for (const other of grid.querySelectorAll("[data-row][tabindex='0']")) other.tabIndex = -1;
  row.tabIndex = 0;
}

function ready(root) {
  for (const link of root.querySelectorAll(".position a")) link.tabIndex = -1;
  dress(root);
}

function focus(row) {
  if (!row) return;
  rove(row);
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

function fold(ruler, open) {
  ruler.setAttribute("aria-expanded", String(open));
  for (const row of grid.querySelectorAll("[data-row]")) {
    if (row.compareDocumentPosition(ruler) & Node.DOCUMENT_POSITION_FOLLOWING || row === ruler) continue;
    if (row.matches("[data-ruler]")) break;
    row.hidden = !open;
  }
}

function rulerOf(row) {
  const all = [...grid.querySelectorAll("[data-row]")];
  return all.slice(0, all.indexOf(row)).reverse().find((one) => one.matches("[data-ruler]"));
}

grid?.addEventListener("keydown", (event) => {
  const row = event.target.closest("[data-row]");
  if (!row || event.target.closest("input, button")) return;
  const all = shown();
  const at = all.indexOf(row);
  const ruler = row.matches("[data-ruler]");
  const moves = {
    ArrowDown: () => focus(all[at + 1]),
    ArrowUp: () => focus(all[at - 1]),
    Home: () => focus(all[0]),
    End: () => focus(all[all.length - 1]),
    ArrowLeft: () => (ruler ? fold(row, false) : focus(rulerOf(row))),
    ArrowRight: () => (ruler ? fold(row, true) : choose(row.querySelector("a").href)),
    Enter: () => (ruler ? fold(row, row.getAttribute("aria-expanded") !== "true") : choose(row.querySelector("a").href)),
  };
  if (event.altKey || event.ctrlKey || event.metaKey || !moves[event.key]) return;
  event.preventDefault();
  moves[event.key]();
});

grid?.addEventListener("click", (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  const ruler = event.target.closest("[data-ruler]");
  if (ruler) {
    if (event.target.closest("[data-fold]")) fold(ruler, ruler.getAttribute("aria-expanded") !== "true");
    return;
  }
  const row = event.target.closest("[data-step]");
  if (!row || getSelection()?.toString()) return;
  event.preventDefault();
  focus(row);
  choose(row.querySelector("a").href);
});

document.addEventListener("keydown", (event) => {
  if (!/^[np]$/.test(event.key) || document.documentElement.dataset.letters !== "on") return;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const bad = steps().filter((row) => /failed|interrupted|held/.test(row.dataset.state) && !row.hidden);
  const now = document.activeElement.closest?.("[data-step]") ?? grid?.querySelector("[aria-selected=true]");
  const number = now ? Number(now.dataset.step) : -1;
  const next = event.key === "n" ? bad.find((row) => Number(row.dataset.step) > number)
    : bad.reverse().find((row) => Number(row.dataset.step) < number);
  if (next) { event.preventDefault(); focus(next); choose(next.querySelector("a").href); }
});

// --- the panel ---

async function load(url) {
  const mine = ++latest;
  const html = await fetched(url, "panel");
  if (mine !== latest) return;
  if (html === null) { location.href = url; return; }
  const place = panel.querySelector(".tabs a:focus") ? "tab" : panel.contains(document.activeElement) ? "panel" : "";
  panel.innerHTML = html; // made by our server, under a policy that runs no inline script
  dress(panel);
  split.classList.add("has-step");
  if (place === "tab") panel.querySelector(".tabs a[aria-current]")?.focus();
  else if (place) panel.focus();
  const number = panel.querySelector("[data-step]")?.dataset.step;
  for (const row of grid?.querySelectorAll("[aria-selected=true]") ?? []) row.setAttribute("aria-selected", "false");
  const row = document.getElementById(`step:${number}`);
  if (row) { row.setAttribute("aria-selected", "true"); rove(row); }
  watch();
}

async function choose(url) {
  if (innerWidth <= 900) { location.href = url; return; } // one panel at a time: the browser's own back leads back
  await load(url);
  history.pushState(null, "", url);
  retarget();
}

// Links of filters and rows keep the step that is open.
function retarget() {
  const here = new URL(location.href).searchParams;
  for (const link of document.querySelectorAll(".journal-bar a, .more-steps a, .position a")) {
    const url = new URL(link.href);
    for (const name of ["step", "tab"]) {
      if (name === "step" && link.closest(".position")) continue;
      if (here.has(name)) url.searchParams.set(name, here.get(name)); else url.searchParams.delete(name);
    }
    link.href = url.href;
  }
}

panel.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-panel]");
  if (!link || !link.hasAttribute("href") || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  choose(link.href);
});

addEventListener("popstate", () => {
  if (new URL(location.href).searchParams.has("step")) load(location.href);
  else location.reload();
});

let growing = 0;
function watch() {
  clearTimeout(growing);
  if (panel.querySelector("[data-growing]")) growing = setTimeout(() => load(location.href), 1000);
}

// --- more steps as one scrolls ---

async function more(link, before) {
  if (link.dataset.busy) return;
  link.dataset.busy = "1";
  const html = await fetched(link.href, "rows");
  if (html === null) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  const chunk = made.content.querySelector(".chunk");
  ready(chunk);
  const head = grid.querySelector(".grid-head");
  if (before) {
    const anchor = head.nextElementSibling;
    const was = anchor.getBoundingClientRect().top;
    head.after(chunk);
    scrollBy(0, anchor.getBoundingClientRect().top - was);
  } else grid.append(chunk);
  delete link.dataset.busy;
  next(link, before, chunk);
}

function next(link, before, chunk) {
  const total = Number(grid.getAttribute("aria-rowcount"));
  const first = Number(chunk.dataset.first), last = Number(chunk.dataset.last);
  const from = before ? Math.max(0, first - 200) : last + 1;
  if (before ? first <= 0 : from >= total) {
    link.closest(".more-steps").remove();
    if (!before) main.dataset.newest = "";
    return;
  }
  const url = new URL(link.href);
  url.searchParams.set("from", from);
  link.href = url.href;
  link.dataset.from = from;
}

const filtered = new URL(location.href).searchParams;
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) more(entry.target, entry.target.id === "earlier");
}, { rootMargin: "600px" });
if (grid && !["failed", "tools", "find"].some((name) => filtered.get(name))) {
  for (const id of ["earlier", "later"]) {
    const link = document.getElementById(id);
    if (!link) continue;
    link.addEventListener("click", (event) => { event.preventDefault(); more(link, id === "earlier"); });
    if (id === "later") near.observe(link);
    else addEventListener("scroll", () => near.observe(link), { once: true }); // not before somebody moves
  }
}

// --- live ---

async function row(number) {
  const html = await fetched(location.pathname, "row", { step: number });
  if (html === null || !grid) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  const fresh = made.content.querySelector("[data-step]");
  if (!fresh) return;
  ready(made.content);
  const old = document.getElementById(fresh.id);
  if (old) {
    fresh.tabIndex = old.tabIndex;
    fresh.setAttribute("aria-selected", old.getAttribute("aria-selected"));
    const had = old === document.activeElement;
    old.replaceWith(fresh);
    if (had) fresh.focus();
  } else if (main.dataset.newest !== undefined) {
    const end = innerHeight + scrollY >= document.body.scrollHeight - 80;
    grid.lastElementChild.append(fresh);
    grid.setAttribute("aria-rowcount", number + 1);
    if (end) fresh.scrollIntoView({ block: "end" });
  }
  if (panel.querySelector(`#panel-inside[data-step="${number}"]`)) load(location.href);
}

// Each step that changed; where they are many (a run is fast-forwarded), the page of them at once.
async function changed() {
  const numbers = [...stale].sort((left, right) => left - right);
  stale.clear();
  if (numbers.length > 8) await lastChunk();
  else for (const number of numbers) await row(number);
}

// The newest page in place of the rows that it holds anew.
async function lastChunk() {
  if (!grid || main.dataset.newest === undefined) return;
  const url = new URL(location.href);
  url.searchParams.delete("from");
  const html = await fetched(url, "rows");
  if (html === null) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  const chunk = made.content.querySelector(".chunk");
  const had = document.activeElement?.closest?.("[data-row]")?.id;
  const rows = [...grid.querySelectorAll("[data-row]")];
  let at = rows.findIndex((one) => Number(one.dataset.step) >= Number(chunk.dataset.first));
  while (at > 0 && rows[at - 1].matches("[data-ruler]")) at -= 1;
  for (const one of at < 0 ? [] : rows.slice(at)) one.remove();
  ready(chunk);
  grid.append(chunk);
  grid.setAttribute("aria-rowcount", Number(chunk.dataset.last) + 1);
  if (had) focus(document.getElementById(had));
  else if (!grid.querySelector("[data-row][tabindex='0']")) rove(shown()[0]);
}

async function head() {
  const html = await fetched(location.href, "head");
  if (html !== null) put(document.getElementById("head"), html);
}

document.addEventListener("change", (event) => {
  const change = event.detail;
  if (!change || change.session !== main.dataset.liveSession) return;
  soon("head", head, 800);
  if (!grid) { soon("page", () => location.reload(), 800); return; }
  if (change.step !== undefined && change.step !== null && /^(step|approval)\./.test(change.kind)) {
    stale.add(change.step);
    soon("steps", changed, 400);
  } else if (/^(run|session)\./.test(change.kind)) soon("chunk", lastChunk, 800);
});
document.addEventListener("resync", () => { soon("head", head); soon("chunk", lastChunk); });

// --- the divider ---

const divider = document.getElementById("divider");
function widen(percent) {
  const value = Math.min(75, Math.max(25, Math.round(percent)));
  split.style.setProperty("--split", `${value}%`);
  divider.setAttribute("aria-valuenow", value);
  try { localStorage.setItem("agentstate.split", value); } catch { /* private windows keep nothing */ }
}
try { const kept = Number(localStorage.getItem("agentstate.split")); if (kept) widen(kept); } catch { /* the same */ }
divider.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  divider.setPointerCapture(event.pointerId);
  const box = split.getBoundingClientRect();
  const move = (at) => widen((box.right - at.clientX) / box.width * 100);
  divider.addEventListener("pointermove", move);
  divider.addEventListener("pointerup", () => divider.removeEventListener("pointermove", move), { once: true });
});
divider.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: 3, ArrowRight: -3, Home: 100, End: -100 }[event.key];
  if (!by) return;
  event.preventDefault();
  widen(Number(divider.getAttribute("aria-valuenow")) + by);
});

if (grid) {
  ready(grid);
  const first = grid.querySelector("[aria-selected=true]") ?? shown()[0];
  if (first) rove(first);
  grid.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  if (filtered.get("from") === null && filtered.get("step") === null && Number(grid.getAttribute("aria-rowcount")) > 200) {
    scrollTo(0, document.body.scrollHeight); // the newest steps are what one comes for
  }
}
watch();
