/* Tracks whether edited arguments were checked by the server since the last change, and found valid. */

const typedWhenSent = new WeakMap();
let changesTyped = 0;
let changesChecked = 0;

/** Return whether the newest version of the edited arguments was checked and has no errors. */
export function isChecked() {
  return document.querySelector("#edited[data-clean]") !== null && changesChecked === changesTyped;
}

document.addEventListener("input", (event) => {
  if (event.target.closest("#args-edit")) changesTyped += 1;
});
document.addEventListener("htmx:beforeSend", (event) => typedWhenSent.set(event.detail.xhr, changesTyped));
document.addEventListener("htmx:afterSwap", (event) => {
  if (["edited", "pane"].includes(event.detail.target?.id)) changesChecked = typedWhenSent.get(event.detail.xhr);
});
