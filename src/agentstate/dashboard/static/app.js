// Owns what every page has once scripts run: copy buttons, times that stay right, forms that send themselves, menus.
// Nothing here is needed to use a page: what scripts add, forms and links do without them.
import "./dialogs.js";
import "./keys.js";
import "./live.js";
import "./palette.js";
import "./verbs.js";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function toast(words, href = "", label = "") {
  const box = document.getElementById("toasts");
  const made = document.createElement("div");
  made.className = "toast";
  made.append(words);
  if (href) {
    const link = document.createElement("a");
    link.href = href;
    link.textContent = label;
    made.append(link);
  }
  box.append(made);
  setTimeout(() => made.remove(), 6000);
}

export function announce(words) {
  document.getElementById("announce").textContent = words;
}

// What a part of the page brought in needs; called again for each part that is put in place.
export function dress(root) {
  for (const button of root.querySelectorAll("[data-copy][hidden], [data-copy-url][hidden], [data-shown][hidden]")) button.hidden = false;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // pages over plain HTTP have no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// A part of a page's JSON, by its path in it.
async function part(url, path) {
  const answer = await fetch(url);
  return path.split(".").reduce((value, name) => value[name], await answer.json());
}

function ago(seconds) {
  const far = Math.abs(seconds);
  if (far < 2) return "now";
  const [size, name] = UNITS.find(([unit]) => far >= unit);
  const said = `${Math.floor(far / size)} ${name}`;
  return seconds > 0 ? `${said} ago` : `in ${said}`;
}

function retime() {
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const words = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== words) time.textContent = words;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-url]");
  if (button) {
    const { copy: text, copyUrl, copyPath } = button.dataset;
    await copy(text ?? (await part(copyUrl, copyPath)));
    const words = button.textContent;
    button.textContent = "Copied";
    announce("Copied");
    setTimeout(() => { button.textContent = words; }, 1500);
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("change", (event) => {
  if (!(event.target instanceof Element)) return; // what live.js tells of, under the same name
  const form = event.target.closest("form[data-auto]");
  if (form) form.requestSubmit();
  if (event.target.form?.querySelector("[data-count]")) counted(event.target.form);
});

// How many rows are ticked, and what may be done to so many.
function counted(form) {
  const ticked = [...form.elements].filter((one) => one.type === "checkbox" && one.checked).length;
  form.querySelector("[data-count]").textContent = `${ticked} selected`;
  for (const button of form.querySelectorAll("[data-exactly]")) {
    button.disabled = ticked !== Number(button.dataset.exactly);
  }
}

dress(document);
retime();
setInterval(retime, 10000);
