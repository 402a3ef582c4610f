/* Jump: a dialog with a combobox. The server finds the results; here they are chosen and opened by keyboard.
   Without a script its links lead to a page with the same search. */

const dialog = document.getElementById("jump");
const field = document.getElementById("jump-text");
const results = document.getElementById("jump-results");
let isAwaited = false; // Enter was pressed before the results of the typed text had come
const isApple = /Mac|iP(hone|ad|od)/.test(navigator.platform);

function open() {
  if (document.querySelector("dialog[open]")) return;
  for (const shown of document.querySelectorAll(":popover-open")) shown.hidePopover();
  dialog.showModal();
  field.select();
  field.dispatchEvent(new CustomEvent("jump:open"));
}

function choose(option) {
  for (const each of results.querySelectorAll("[role=option]")) each.ariaSelected = String(each === option);
  if (option) field.setAttribute("aria-activedescendant", option.id);
  else field.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

function move(step) {
  const options = [...results.querySelectorAll("[role=option]")];
  const at = options.findIndex((option) => option.ariaSelected === "true");
  choose(options.at((at + step + options.length) % options.length));
}

/** Return whether the results are those of the text in the field. */
function isCurrent() {
  return document.getElementById("jump-counted")?.dataset.text === field.value.trim();
}

/** Keys of the combobox; typing goes on in the field. */
function onFieldKey(event) {
  if (event.key === "ArrowDown") move(1);
  else if (event.key === "ArrowUp") move(-1);
  else if (event.key === "Enter" && !(event.isComposing || event.ctrlKey || event.metaKey)) {
    isAwaited = !isCurrent();
    if (!isAwaited) results.querySelector("[aria-selected=true]")?.click();
  } else return;
  event.preventDefault();
}

if (dialog) {
  if (isApple) for (const key of document.querySelectorAll("[data-jump-key]")) key.textContent = "⌘ K";
  field.addEventListener("keydown", onFieldKey);
  field.addEventListener("input", () => {
    isAwaited = false;
  });
  results.addEventListener("htmx:afterSwap", () => {
    choose(results.querySelector("[role=option]"));
    document.getElementById("jump-count").textContent = document.getElementById("jump-counted").dataset.count;
    if (!isAwaited || !isCurrent()) return;
    isAwaited = false;
    results.querySelector("a[aria-selected=true]")?.click(); // never a command that nobody has seen yet
  });
  document.addEventListener("keydown", (event) => {
    if (event.key?.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else open();
  });
  document.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-jump-close]")) dialog.close();
    const opener = event.target.closest("[data-jump]");
    if (!opener || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
}
