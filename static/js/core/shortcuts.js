/* Keyboard: single keys press whatever carries data-key, G and a letter go where data-go says.
   Never while a field has focus, with a modifier, in a dialog, or when the person has switched them off. */

import { answer } from "./announce.js";
import { choose } from "./choices.js";

const STORE = "toolgate.keys";
const SEQUENCE_MS = 900;
const PAUSE_MS = 1000;
const FIELD =
  "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select, [contenteditable]";
const shortcuts = new Map();
let goUntil = 0;
let leftAt = -PAUSE_MS;
let sentFrom;

/** Run `action` when `key` is pressed. It returns true if it has acted, false to let the key pass, and nothing to leave
    the key to the actions of other pages and to the element with this data-key. */
export function onKey(key, action) {
  shortcuts.set(key, [...(shortcuts.get(key) ?? []), action]);
}

/** Return the first visible element that matches. */
export function visible(selector) {
  return [...document.querySelectorAll(selector)].find((element) =>
    element.checkVisibility({ visibilityProperty: true }),
  );
}

function enabled() {
  return document.body.dataset.shortcuts !== "off";
}

/** Save the person's choice for all their browsers; without an answer it holds for this page. */
async function enable(isOn) {
  const value = isOn ? "on" : "off";
  document.body.dataset.shortcuts = value;
  if ((await choose("shortcuts", value)) && earlierChoice()) localStorage.removeItem(STORE);
}

/** Return the choice that an earlier version kept in this browser. */
function earlierChoice() {
  try {
    return localStorage.getItem(STORE);
  } catch {
    return null; // private browsing
  }
}

function press(element) {
  if (!element || element.matches(":disabled, [aria-disabled=true]")) return false;
  if (element.matches(FIELD)) element.focus();
  else element.click();
  return true;
}

/** Send a form as the button named by data-sends, or its first one, does: what that says is part of what is sent. */
function send(form) {
  const first = [...form.elements].find((element) => element.type === "submit");
  const button = document.getElementById(form.dataset.sends ?? "") ?? first;
  if (button?.disabled) answer("Nothing was sent: press one of the buttons");
  else if (button) button.click();
  else form.requestSubmit();
}

function open(id) {
  const sheet = document.getElementById(id);
  if (!sheet || sheet.open) return;
  const box = sheet.querySelector("#keys-on");
  if (box) box.checked = enabled();
  sheet.querySelector(".keys")?.classList.toggle("mute", !enabled());
  sheet.showModal();
}

function act(key, event) {
  if (key === "?") return open("keys");
  if (performance.now() < goUntil) {
    goUntil = 0;
    return press(visible(`[data-go="${CSS.escape(key)}"]`));
  }
  if (key === "g") {
    goUntil = performance.now() + SEQUENCE_MS;
    return true;
  }
  if (key === "/") return press(visible("main [type=search]"));
  for (const action of shortcuts.get(key) ?? []) {
    const acted = action(event);
    if (acted !== undefined) return acted;
  }
  return press(visible(`[data-key="${CSS.escape(key)}"]`));
}

/** Say whether someone types on although their field left the page: until they pause, no letter is a key. */
function typesOn() {
  const now = performance.now();
  const isOn = now - leftAt < PAUSE_MS;
  leftAt = isOn ? now : -PAUSE_MS;
  return isOn;
}

document.addEventListener(
  "submit",
  () => {
    sentFrom = document.activeElement;
  },
  true,
);
document.addEventListener("htmx:beforeSwap", (event) => {
  const field = document.activeElement;
  if (field !== sentFrom && field?.matches(FIELD) && event.detail.target.contains(field)) leftAt = performance.now();
});

// The form of a step gives the focus back to the field that it replaced, so that what is typed goes on there.
document.addEventListener("focusin", ({ target }) => {
  if (target.matches(FIELD) && target.closest("#step-form")) leftAt = -PAUSE_MS;
});

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.closest(FIELD);
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && typing?.form) {
    event.preventDefault();
    const wanted = new CustomEvent("toolgate:send", { bubbles: true, cancelable: true });
    if (typing.dispatchEvent(wanted)) send(typing.form);
    return;
  }
  if (event.key === "Escape" && typing) {
    typing.dispatchEvent(new CustomEvent("toolgate:leave", { bubbles: true }));
    return void typing.blur();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || typesOn()) return;
  if (event.repeat && !/^(j|k|Arrow)/.test(event.key)) return;
  if (document.querySelector("dialog[open]") || !enabled()) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (act(key, event) !== false) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (!opener) return;
  opener.closest("[popover]")?.hidePopover(); // so that the focus returns to its button when the dialog closes
  open(opener.dataset.open);
});

document.addEventListener("change", (event) => {
  if (event.target.id !== "keys-on") return;
  enable(event.target.checked);
  event.target.closest(".keys").classList.toggle("mute", !event.target.checked);
});

if (document.body.dataset.person && earlierChoice() === "off") enable(false);
