// Owns counting again as filters change, without leaving the page. Without it the button counts.

const form = document.getElementById("filters");
let last = 0;
let timer = 0;

function address() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  return `${form.action.split("?")[0]}?${query}`;
}

async function count() {
  const turn = ++last;
  const shown = document.getElementById("report");
  const waits = setTimeout(() => shown.setAttribute("aria-busy", "true"), 150);
  try {
    const answer = await fetch(`${address()}&fragment=report`, { headers: { accept: "text/html" } });
    if (turn !== last || !answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("report");
    if (!made) return;
    document.getElementById("report").replaceWith(document.adoptNode(made));
    for (const button of made.querySelectorAll("[data-copy]")) button.hidden = false;
    history.replaceState(null, "", address());
  } finally {
    clearTimeout(waits);
    document.getElementById("report").removeAttribute("aria-busy");
  }
}

if (form) {
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(count, 350);
  });
}
