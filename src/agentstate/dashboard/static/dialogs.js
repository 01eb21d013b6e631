// Owns opening a dialog's page as <dialog>. The page itself works without it; what is sent goes to the same address.
import { dress } from "./app.js";

let origin = null;

function part(url) {
  const made = new URL(url, location.href);
  made.searchParams.set("fragment", "dialog");
  return made;
}

function fill(dialog, html) {
  dialog.innerHTML = html; // made by our server, under a policy that runs no inline script
  dress(dialog);
  for (const heading of dialog.querySelectorAll("h1")) {
    const lower = document.createElement("h2"); // the page below has its h1
    lower.className = heading.className;
    lower.id = heading.id;
    lower.textContent = heading.textContent;
    heading.replaceWith(lower);
  }
  document.dispatchEvent(new CustomEvent("dialog-filled", { detail: dialog }));
}

export async function open(url) {
  const answer = await fetch(part(url), { headers: { accept: "text/html" } });
  if (answer.redirected || !answer.ok) {
    location.href = url;
    return;
  }
  origin = document.activeElement;
  const dialog = document.createElement("dialog");
  dialog.className = "sheet";
  dialog.dataset.url = url;
  dialog.setAttribute("aria-labelledby", "dialog-title");
  document.body.append(dialog);
  fill(dialog, await answer.text());
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (origin && origin.isConnected) origin.focus();
  });
  dialog.showModal();
}

async function send(form, submitter, dialog, body) {
  const method = form.method.toUpperCase();
  const url = new URL(submitter?.getAttribute("formaction") || form.getAttribute("action") || dialog.dataset.url, location.href);
  if (method === "GET") url.search = body.toString();
  const answer = await fetch(part(url), method === "GET" ? {} : { method, body });
  if (answer.redirected) {
    const to = new URL(answer.url);
    to.searchParams.delete("fragment");
    if (to.pathname + to.search === location.pathname + location.search) location.reload();
    else location.href = to.pathname + to.search + to.hash;
    return;
  }
  if (method === "GET") dialog.dataset.url = url.href;
  fill(dialog, await answer.text()); // a refusal stays in the dialog
  (dialog.querySelector("[role=alert]") || dialog).scrollIntoView({ block: "nearest" });
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const close = event.target.closest("dialog [data-close]");
  if (close) {
    event.preventDefault();
    close.closest("dialog").close();
    return;
  }
  const link = event.target.closest("a[data-dialog]");
  if (link) {
    event.preventDefault();
    const inside = link.closest("dialog.sheet");
    if (inside) inside.close();
    open(link.href);
  }
});

document.addEventListener("submit", (event) => {
  const dialog = event.target.closest("dialog.sheet");
  if (!dialog || event.target.method === "dialog") return;
  event.preventDefault();
  const button = event.submitter;
  const body = new URLSearchParams(new FormData(event.target, button)); // a disabled button would not be in it
  if (button) button.disabled = true;
  send(event.target, button, dialog, body).finally(() => { if (button) button.disabled = false; });
});
