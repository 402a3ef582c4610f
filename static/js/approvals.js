/* The decision bar. Approve stays locked until the end of the change was on screen; what cannot be undone takes a
   second press within four seconds; D asks for the reason first. The server checks everything again. */

import { answer } from "./announce.js";
import { onChange } from "./changes.js";
import { onKey, visible } from "./keys.js";
import { toast } from "./toasts.js";

const ARMED_MS = 4000;
const seen = new Set();
let watcher;
let disarmTimer;

function bar() {
  return document.querySelector("form[data-decide]");
}

function approveButton(form) {
  return form?.querySelector("[name=verdict][value=approve]");
}

function watchTheEnd() {
  watcher?.disconnect();
  const form = bar();
  const button = approveButton(form);
  const end = document.getElementById("diff-end");
  if (!button || !end || seen.has(form.dataset.decide)) return;
  button.dataset.unread = "";
  watcher = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.add(form.dataset.decide);
    delete button.dataset.unread;
    watcher.disconnect();
  }, { rootMargin: "0px 0px -60px" });
  watcher.observe(end);
}

function arm(button) {
  const label = button.querySelector("[data-label]");
  button.classList.add("armed");
  label.dataset.label = label.textContent;
  label.textContent = button.dataset.again;
  answer(`This cannot be undone. ${button.dataset.again}.`);
  disarmTimer = setTimeout(disarm, ARMED_MS);
}

function disarm() {
  clearTimeout(disarmTimer);
  const button = document.querySelector(".btn.armed");
  if (!button) return false;
  button.classList.remove("armed");
  const label = button.querySelector("[data-label]");
  label.textContent = label.dataset.label;
  return true;
}

function approve(event, button) {
  if ("unread" in button.dataset) {
    event.preventDefault();
    document.getElementById("diff-end").scrollIntoView({ block: "center" });
    answer("Showing the rest of the change");
  } else if (button.dataset.again && !button.classList.contains("armed")) {
    event.preventDefault();
    arm(button);
  } else {
    const twice = button.form.elements.confirmed;
    if (twice) twice.value = button.dataset.again ? "1" : "";
    clearTimeout(disarmTimer);
  }
}

function askForReason() {
  const form = bar();
  const note = form?.elements.comment;
  const reject = form?.querySelector("[name=verdict][value=reject]");
  if (!note || !reject) return undefined;
  if (note.value.trim()) {
    reject.click();
    return true;
  }
  form.dataset.intent = "reject";
  note.focus();
  answer("Say why, then press Control Enter to reject");
  return true;
}

// Capture, so that htmx never sees a press that must not count.
document.addEventListener("click", (event) => {
  const button = event.target.closest("form[data-decide] [name=verdict][value=approve]");
  if (!button) return;
  approve(event, button);
  if (event.defaultPrevented) event.stopPropagation();
}, true);

document.addEventListener("toolgate:send", (event) => {
  const form = event.target.closest("form[data-decide]");
  if (!form) return;
  event.preventDefault();
  const verdict = form.dataset.intent === "reject" ? "reject" : "approve";
  form.querySelector(`[name=verdict][value=${verdict}]`)?.click();
});
document.addEventListener("focusout", (event) => {
  const form = event.target.closest?.("form[data-decide]");
  if (form && !event.target.value?.trim()) delete form.dataset.intent;
});

// On a phone the list and the request are two pages: their link is a link, and Back leads to the list.
document.addEventListener("click", (event) => {
  if (event.target.closest("#queue a[hx-get]") && matchMedia("(max-width: 720px)").matches) event.stopPropagation();
}, true);

for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, (event) => {
    if (!event.target.closest?.("form[data-decide]")) return;
    toast("Could not save your decision. The request is still waiting; nothing ran. Send it again, or open the page again.");
    answer("Could not save your decision");
  });
}

onKey("d", askForReason);
onKey("Escape", () => disarm() || (visible("form[data-decide]") ? (delete bar().dataset.intent, true) : false));
onChange(watchTheEnd);
