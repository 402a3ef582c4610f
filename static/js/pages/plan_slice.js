/* A slice of a plan: approve stays locked until the end of every step that is checked was on screen; the button says
   how many are checked. Without a script the form works as it is; the server checks everything again. */

import { answer } from "../core/announce.js";
import { onChange } from "../core/page_changes.js";

const seen = new WeakSet();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) see(entry.target);
  },
  { rootMargin: "0px 0px -60px" },
);

function form() {
  return document.querySelector("form[data-slice]");
}

function boxes() {
  return [...document.querySelectorAll("input[name=item][form=slice]")].filter((box) => box.checked);
}

function endOf(box) {
  return box.closest(".slice-item").querySelector("[data-slice-end]");
}

function see(end) {
  seen.add(end);
  watcher.unobserve(end);
  show();
}

function show() {
  const button = form()?.querySelector(".btn.go");
  if (!button) return;
  const checked = boxes();
  button.toggleAttribute(
    "data-unread",
    checked.some((box) => !seen.has(endOf(box))),
  );
  button.disabled = !checked.length;
  for (const place of button.querySelectorAll("[data-checked]")) place.textContent = String(checked.length);
}

function watch() {
  for (const end of document.querySelectorAll("[data-slice-end]")) if (!seen.has(end)) watcher.observe(end);
  show();
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input[name=item][form=slice]")) show();
});
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("form[data-slice] .btn.go");
    if (!button || !("unread" in button.dataset)) return;
    event.preventDefault();
    const next = boxes()
      .map(endOf)
      .find((end) => !seen.has(end));
    next?.scrollIntoView({ block: "center" });
    answer("Showing the rest of the steps");
  },
  true,
);

onChange(watch);
