// Owns keeping a page true while it is open: one stream of events, and fetching anew what they concern.
// A lost stream is said, and leaves everything in place. Other modules hear of events as "change" on `document`.
import { announce, dress } from "./app.js";

const main = document.getElementById("main");
const light = document.getElementById("link-state");
const words = document.getElementById("link-words");
const waiting = new Map();
let after = document.querySelector("meta[name=after]").content; // the newest event that this page knows of
const fresh = new Set();
const stale = new Set();
const MOST_ROWS = 5; // that are fetched in a second

function say(state, text) {
  light.dataset.state = state;
  words.textContent = text;
  light.title = text;
}

// Once soon, however often it is asked for meanwhile; while nobody looks, not before somebody does.
export function soon(key, work, after = 250) {
  if (waiting.has(key)) return;
  waiting.set(key, work);
  setTimeout(() => { if (!document.hidden) run(key); }, after);
}

function run(key) {
  const work = waiting.get(key);
  waiting.delete(key);
  work?.();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const key of [...waiting.keys()]) run(key);
});

export async function fetched(url, fragment, more = {}) {
  const made = new URL(url, location.href);
  made.searchParams.set("fragment", fragment);
  for (const [name, value] of Object.entries(more)) made.searchParams.set(name, value);
  const answer = await fetch(made);
  if (answer.status === 401) location.reload();
  return answer.ok ? answer.text() : null;
}

export function put(element, html) {
  const made = document.createElement("template");
  made.innerHTML = html; // made by our server, under a policy that runs no inline script
  const next = made.content.firstElementChild;
  if (!next) return null;
  const had = element.contains(document.activeElement) ? document.activeElement : null;
  const ticked = new Set([...element.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value));
  for (const box of next.querySelectorAll("input[type=checkbox]")) box.checked = ticked.has(box.value);
  dress(made.content);
  element.replaceWith(next);
  if (had) (had === element ? next : next.querySelector("a, button, input"))?.focus();
  return next;
}

async function strip() {
  const old = document.getElementById("strip");
  const before = Number(old.querySelector("[data-held]").dataset.held);
  const html = await fetched("/dashboard/strip", "strip");
  if (html === null) return;
  const held = Number(put(old, html).querySelector("[data-held]").dataset.held);
  const badge = document.getElementById("badge");
  badge.hidden = !held;
  badge.firstChild.textContent = held;
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = held ? `(${held}) ${title}` : title;
  if (held > before) announce(`${held} ${held === 1 ? "call is" : "calls are"} held and wait for a person`);
}

// Rows that changed, a few a second: however busy the proxy is, looking at it stays cheap.
async function rows() {
  for (const id of [...stale].slice(0, MOST_ROWS)) {
    stale.delete(id);
    const element = document.getElementById(id);
    if (element) await row(element);
  }
  if (stale.size) soon("rows", rows, 1000);
}

async function row(element) {
  const html = await fetched(element.dataset.src, "row");
  if (html === null || !element.isConnected) return;
  const next = put(element, html);
  if (next) next.classList.add("changed");
}

async function part() {
  const id = main.dataset.liveFragment;
  const html = await fetched(location.href, id);
  const old = document.getElementById(id);
  if (html !== null && old) put(old, html);
}

function pill() {
  const box = document.getElementById("fresh");
  if (!box || !fresh.size) return;
  box.hidden = false;
  box.querySelector("button").textContent = `${fresh.size} new`;
}

function concerns(change) {
  const { liveSession, liveKinds } = main.dataset;
  if (liveSession !== undefined && change.session !== liveSession) return false;
  return !liveKinds || liveKinds.split(",").some((kind) => change.kind.startsWith(kind));
}

function heard(change) {
  soon("strip", strip, 600);
  document.dispatchEvent(new CustomEvent("change", { detail: change }));
  if (!concerns(change)) return;
  if (main.dataset.liveFragment) soon("part", part);
  if (main.dataset.liveRows === undefined || !change.session) return;
  const element = document.getElementById(`row:${change.session}`);
  if (element) { stale.add(element.id); soon("rows", rows, 400); }
  else { fresh.add(change.session); pill(); }
}

function listen() {
  const source = new EventSource(`/api/events?after=${encodeURIComponent(after)}`);
  source.addEventListener("open", () => say("on", "Live"));
  source.addEventListener("change", (event) => {
    after = event.lastEventId || after;
    heard(JSON.parse(event.data));
  });
  source.addEventListener("resync", (event) => {
    after = event.lastEventId || after;
    soon("strip", strip);
    document.dispatchEvent(new CustomEvent("resync"));
    if (main.dataset.liveFragment) soon("part", part);
    for (const element of main.querySelectorAll("[data-src]")) stale.add(element.id);
    soon("rows", rows);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) {
      say("off", "Live updates paused, retrying in 15 s");
      setTimeout(listen, 15000);
    } else say("off", "Live updates paused, retrying");
  });
  addEventListener("pagehide", () => source.close());
}

document.getElementById("fresh")?.addEventListener("click", () => location.reload());
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
listen();
