/* Approving a slice of a plan: the button is locked until the end of every checked step was on screen, and shows how
   many steps are checked. The form works without scripts; the server checks everything again. */

import { endWatcher } from "../components/read_to_end.js";
import { answer } from "../core/announce.js";
import { onChange } from "../core/page_changes.js";

const seen = new WeakSet();
const ends = endWatcher(see);

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
  show();
}

function show() {
  const button = form()?.querySelector(".button.go");
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
  for (const end of document.querySelectorAll("[data-slice-end]")) if (!seen.has(end)) ends.watch(end);
  show();
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input[name=item][form=slice]")) show();
});
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("form[data-slice] .button.go");
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
