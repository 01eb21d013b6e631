// Owns what scripts add to Compare: the chosen pair is in sight, and what moves to another pair leaves the place.
const on = document.querySelector(".pair-list .on");
const list = document.querySelector(".pair-list");
if (on && list && list.scrollHeight > list.clientHeight) list.scrollTop = on.offsetTop - list.offsetTop - list.clientHeight / 3;

// Between differences the page need not jump to its top.
const KEY = "agentstate-compare-y";
document.addEventListener("click", (event) => {
  if (event.target.closest(".pair-list a, .steps-of a")) sessionStorage.setItem(KEY, String(scrollY));
});
const kept = sessionStorage.getItem(KEY);
sessionStorage.removeItem(KEY);
if (kept !== null) scrollTo(0, Number(kept));
