// Owns what scripts add to the dialogs of verbs: the chosen step stays in sight and keeps the focus, wherever it is.
document.documentElement.classList.add("scripts");

let had = null; // what had the focus in a dialog before it was filled anew

function place(root) {
  root.querySelector("[data-step-list] input:checked")?.closest("li").scrollIntoView({ block: "nearest" });
}

document.addEventListener("submit", (event) => {
  const focused = document.activeElement;
  had = event.target.contains(focused) && focused.name ? { name: focused.name, value: focused.value } : null;
}, true);

document.addEventListener("dialog-filled", (event) => {
  const dialog = event.detail;
  requestAnimationFrame(() => {
    place(dialog);
    if (!had) return;
    const same = [...dialog.querySelectorAll(`[name="${CSS.escape(had.name)}"]`)];
    (same.find((one) => one.value === had.value) ?? same.find((one) => one.type !== "radio") ?? dialog.querySelector("input:checked, button"))?.focus();
    had = null;
  });
});

place(document);
