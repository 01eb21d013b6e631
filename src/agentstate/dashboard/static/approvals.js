// Owns what scripts add to the pages of approvals: letters that decide only where the card is focused, the difference
// while somebody edits, the card that says when somebody else was first, and desktop notifications.
// Nothing here decides: forms do.
import { announce, toast } from "./app.js";
import { fetched, put, soon } from "./live.js";

const DECIDES = new Set(["a", "e", "r"]);
const card = () => document.getElementById("card");

// --- letters ---

function typing(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(checkbox|radio)$/.test(target.type);
}

// Before keys.js: a letter decides about a card only once that card has the focus.
document.addEventListener("keydown", (event) => {
  if (!DECIDES.has(event.key) || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.documentElement.dataset.letters !== "on" || document.querySelector("dialog[open]")) return;
  const shown = card();
  if (!shown || shown.contains(document.activeElement) || !shown.querySelector(`[data-key="${event.key}"]`)) return;
  event.preventDefault();
  shown.focus();
  toast(`Press ${event.key} again to decide about ${shown.querySelector("h2").textContent.trim()}.`);
}, true);

document.addEventListener("toggle", (event) => {
  const asks = event.target.closest?.("details.asks");
  if (!asks || !asks.open) return;
  for (const other of document.querySelectorAll("details.asks[open]")) if (other !== asks) other.open = false;
  asks.querySelector("textarea, input:not([type=hidden])")?.focus();
}, true);

// --- the card while it is looked at ---

async function again() {
  const shown = card();
  if (!shown) return;
  const html = await fetched(location.href, "card");
  if (html === null) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  const next = made.content.querySelector("#card");
  if (!next || next.dataset.approval !== shown.dataset.approval) return;
  if (next.dataset.state !== shown.dataset.state) {
    put(shown, html);
    announce(next.querySelector(".outcome strong")?.textContent ?? "This approval has changed");
  }
}

document.addEventListener("change", (event) => {
  const kind = event.detail?.kind;
  if (!kind?.startsWith("approval.")) return;
  if (card()) soon("card", again);
  else if (kind === "approval.asked" && document.querySelector("#inbox .empty")) soon("first", () => location.reload(), 400);
  if (kind === "approval.asked") tell();
});
document.addEventListener("resync", () => soon("card", again));

// --- editing ---

const form = document.querySelector("form[data-check]");

async function check() {
  const body = new URLSearchParams(new FormData(form));
  body.set("do", "check");
  const url = new URL(form.action);
  url.searchParams.set("fragment", "check");
  const answer = await fetch(url, { method: "POST", body });
  if (!answer.ok) return;
  const made = document.createElement("template");
  made.innerHTML = await answer.text();
  const next = made.content.querySelector("#check");
  if (!next) return;
  document.getElementById("check").replaceWith(next);
  form.querySelector("[data-approve]").disabled = next.dataset.valid !== "yes";
  const wrong = new Set([...next.querySelectorAll("[data-wrong]")].map((one) => `argument-${one.dataset.wrong}`));
  for (const field of form.querySelectorAll("[name^=argument-]")) {
    if (wrong.has(field.name)) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    field.closest(".field")?.classList.toggle("bad", wrong.has(field.name));
  }
}

if (form) {
  form.querySelector("[data-check-button]").hidden = true;
  form.addEventListener("input", () => soon("check", check, 200));
  form.addEventListener("change", () => soon("check", check, 200));
}

// --- notifications: asked for only once something is held ---

const box = document.getElementById("notify");
const KEY = "agentstate-notify";

function offered() {
  if (!box || !("Notification" in window) || Notification.permission !== "default") return;
  if (localStorage.getItem(KEY) !== "no" && card()?.dataset.state === "pending") box.hidden = false;
}

function tell() {
  if (!("Notification" in window)) return;
  if (Notification.permission === "granted" && localStorage.getItem(KEY) === "yes" && document.hidden) {
    new Notification("AgentState", { body: "A call is held and waits for you.", tag: "agentstate-held" });
  } else offered();
}

document.getElementById("notify-yes")?.addEventListener("click", async () => {
  box.hidden = true;
  localStorage.setItem(KEY, (await Notification.requestPermission()) === "granted" ? "yes" : "no");
});
document.getElementById("notify-no")?.addEventListener("click", () => {
  box.hidden = true;
  localStorage.setItem(KEY, "no");
});
offered();
