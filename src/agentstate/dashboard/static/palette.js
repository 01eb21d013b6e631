// Owns the list of commands behind ⌘K: pages, what this page offers, a session by its id. It only presses what is there.
const opener = document.getElementById("palette-open");
opener.hidden = false;

function entries() {
  const found = [];
  for (const link of document.querySelectorAll("[data-go]")) {
    found.push({ name: `Go to ${link.title}`, hint: `g ${link.dataset.go}`, act: () => link.click() });
  }
  for (const one of document.querySelectorAll("main a.button, main button:not([type=button]), main [data-action], main .chips a, main .tabs a, main .menu-items a")) {
    if (one.disabled || one.closest("dialog")) continue;
    const name = one.dataset.action || one.textContent.trim();
    if (name) found.push({ name, hint: one.dataset.key || "", act: () => { one.closest("details")?.setAttribute("open", ""); one.focus(); one.click(); } });
  }
  for (const one of document.querySelectorAll(".look button")) {
    found.push({ name: one.title, hint: "", act: () => one.click() });
  }
  found.push({ name: "Keyboard shortcuts", hint: "?", act: () => document.getElementById("overlay").showModal() });
  return found;
}

function matches(name, words) {
  return words.every((word) => name.toLowerCase().includes(word));
}

export function open() {
  if (document.querySelector("dialog[open]")) return;
  const origin = document.activeElement;
  const dialog = document.createElement("dialog");
  dialog.id = "palette";
  dialog.setAttribute("aria-label", "Commands");
  const input = document.createElement("input");
  input.type = "text";
  input.placeholder = "A command, or a session's id";
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-label", "A command, or a session's id");
  input.setAttribute("aria-expanded", "true");
  input.setAttribute("aria-controls", "palette-list");
  const list = document.createElement("ul");
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Commands");
  dialog.append(input, list);
  document.body.append(dialog);
  const all = entries();
  let shown = [], at = 0;

  function draw() {
    const text = input.value.trim();
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    shown = all.filter((one) => matches(one.name, words)).slice(0, 30);
    if (text) {
      const [key, number] = text.split("#");
      const query = /^\d+$/.test(number || "") ? `?step=${number}` : "";
      shown.push({ name: `Open session ${text}`, hint: "", act: () => { location.href = `/dashboard/sessions/${encodeURIComponent(key)}${query}`; } });
      shown.push({ name: `Search for “${text}”`, hint: "", act: () => { location.href = `/dashboard?q=${encodeURIComponent(text)}`; } });
    }
    at = Math.min(at, Math.max(shown.length - 1, 0));
    list.replaceChildren(...shown.map((one, place) => {
      const item = document.createElement("li");
      item.id = `palette-${place}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(place === at));
      const hint = document.createElement("span");
      hint.textContent = one.hint;
      item.append(one.name, hint);
      item.addEventListener("click", () => { dialog.close(); one.act(); });
      return item;
    }));
    input.setAttribute("aria-activedescendant", shown.length ? `palette-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }

  input.addEventListener("input", () => { at = 0; draw(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") at = Math.min(at + 1, shown.length - 1);
    else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
    else if (event.key === "Enter") {
      event.preventDefault();
      dialog.close();
      shown[at]?.act();
      return;
    } else return;
    event.preventDefault();
    draw();
  });
  dialog.addEventListener("close", () => { dialog.remove(); if (origin?.isConnected) origin.focus(); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  draw();
  dialog.showModal();
}

opener.addEventListener("click", open);
document.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    open();
  }
});
