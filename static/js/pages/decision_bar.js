/* The decision bar. Approve is locked until the end of the change was on screen. A call that cannot be undone takes a
   second press within four seconds. Answers that need a note ask for it first. The server checks everything again. */

import { closeMenus, closeOpenMenu, onMenuKey, pressItem } from "../components/menu.js";
import { endWatcher } from "../components/read_to_end.js";
import { answer } from "../core/announce.js";
import { onChange } from "../core/page_changes.js";
import { onKey, visible } from "../core/shortcuts.js";
import { isChecked } from "./edit_check.js";
import { isOpening, tellOpening } from "./pane_requests.js";
import { answerTogether, clearSelection } from "./queue_selection.js";
import { timeLeft } from "./reading_time.js";

const ARMED_MS = 4000;
const read = new Set();
const ends = endWatcher(unlock);
let watched = {};
let disarmTimer;

function bar() {
  return document.querySelector("form[data-decide]");
}

/** The form that approves what is shown: one request, or several together. */
function openForm() {
  return bar() ?? document.querySelector("form[data-several]");
}

function approveButton(form) {
  return form?.querySelector("[name=verdict][value=approve]");
}

/** Identify what is being decided: another request, digest or edit has to be read again. */
function subject(form) {
  if ("several" in form.dataset) return [...form.querySelectorAll("[name=item]")].map((box) => box.value).join();
  return form.dataset.decide + (document.getElementById("edited")?.textContent ?? "");
}

/** Lock the approve button until the end of its subject was on screen. */
function lock() {
  const form = openForm();
  const button = approveButton(form);
  const end = document.getElementById("diff-end");
  const what = button && subject(form);
  if (watched.what === what && watched.button === button && watched.end === end) return;
  ends.clear();
  watched = { what, button, end };
  if (!button || !end) return;
  if (read.has(what)) return void delete button.dataset.unread;
  button.dataset.unread = "";
  ends.watch(end);
}

function unlock() {
  read.add(watched.what);
  delete watched.button.dataset.unread;
}

function arm(button) {
  button.classList.add("armed");
  answer(`Press again: ${button.dataset.again}.`);
  disarmTimer = setTimeout(disarm, ARMED_MS);
}

function disarm() {
  clearTimeout(disarmTimer);
  const button = document.querySelector(".button.armed");
  if (!button) return false;
  button.classList.remove("armed");
  return true;
}

function approve(event, button) {
  if ("unread" in button.dataset) {
    event.preventDefault();
    document.getElementById("diff-end").scrollIntoView({ block: "center" });
    answer("Showing the rest of the change");
  } else if (button.dataset.wait) {
    event.preventDefault();
    answer(`Look at it a little longer: ${timeLeft()} left`);
  } else if (button.dataset.again && !button.classList.contains("armed")) {
    event.preventDefault();
    arm(button);
  } else if ("decide" in button.form.dataset) {
    const twice = button.form.elements.confirmed;
    if (twice) twice.value = button.dataset.again ? "1" : "";
    clearTimeout(disarmTimer);
  }
}

/** Send an answer that may need a note; if the note is empty, ask for it first. */
function answerWith(button) {
  const form = button.form;
  const note = form.elements.comment;
  if (note.value.trim()) {
    button.click();
    return true;
  }
  form.dataset.intent = button.dataset.intent;
  closeMenus();
  note.focus();
  answer(button.dataset.asks ?? "Say why, then press Control Enter");
  return true;
}

/** Return the button of the answer that the form asked a note for. */
function intended(form) {
  return form.querySelector(`[data-intent="${CSS.escape(form.dataset.intent ?? "")}"]`);
}

function askForReason() {
  const reject = bar()?.querySelector("[data-intent=reject]");
  return reject ? answerWith(reject) : undefined;
}

document.addEventListener("click", (event) => {
  const chip = event.target.closest("[data-reason]");
  if (!chip) return;
  const note = chip.closest("form").elements.comment;
  note.value = chip.dataset.reason;
  note.focus();
});

// In the capture phase, so that htmx never sees a press that must not count.
document.addEventListener(
  "click",
  (event) => {
    if (event.defaultPrevented) return;
    const button = event.target.closest("form:is([data-decide], [data-several]) [name=verdict][value=approve]");
    if (!button) return;
    approve(event, button);
    if (event.defaultPrevented) event.stopPropagation();
  },
  true,
);

document.addEventListener("toolgate:send", (event) => {
  const form = event.target.closest("form[data-decide], form[data-several]");
  if (!form) return;
  event.preventDefault();
  const needsCheck = event.target.name !== "comment" && form.id === "editing" && !isChecked();
  if (needsCheck) form.querySelector("#edit-check").click();
  else (intended(form) ?? approveButton(form))?.click();
});

document.addEventListener("focusout", (event) => {
  const form = event.target.closest?.("form[data-decide], form[data-several]");
  const stays = event.relatedTarget?.closest?.("[data-reason], [data-intent]");
  if (form && !stays && event.target.name === "comment" && !event.target.value.trim()) delete form.dataset.intent;
});

function leave() {
  const link = visible("[data-leave]");
  if (link) {
    link.click();
    return true;
  }
  if (!bar()) return false;
  delete bar().dataset.intent;
  return true;
}

/** With several requests selected, an answer key opens them together; there it focuses what answers them. */
function forSelection(verdict) {
  const together = document.querySelector("#several .decide");
  if (together) return focusOnAnswer(together, verdict);
  const opens = answerTogether();
  if (opens) disarm();
  return opens;
}

function focusOnAnswer(several, verdict) {
  if (verdict === "reject") several.closest("form").dataset.intent = "reject";
  const place = several.querySelector(verdict === "reject" ? "[name=comment]" : "[value=approve]");
  if (place) place.focus();
  else answer(several.querySelector(".stake")?.textContent ?? "They cannot be approved together");
  return true;
}

function onAnswerKey(key, verdict, action) {
  onKey(key, () => {
    if (isOpening()) {
      tellOpening();
      return true;
    }
    return forSelection(verdict) || action();
  });
}

onAnswerKey("a", "approve", () => undefined); // the element with data-key="a" is pressed
onAnswerKey("d", "reject", askForReason);
for (const key of ["r", "c", "s", "m", "w"]) {
  onMenuKey(key, (item) => (item.dataset.intent ? answerWith(item) : pressItem(item)));
}
onKey("q", () => {
  const field = visible("#ask");
  field?.focus();
  return Boolean(field);
});
onKey("Escape", () => disarm() || closeOpenMenu() || clearSelection() || leave());
onChange(lock);
