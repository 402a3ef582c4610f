/* The decision bar. Approve is locked until the end of the change was on screen. A call that cannot be undone takes a
   second press within four seconds. An answer that takes a note becomes the form's intent: the bar then shows that answer
   alone, until Escape, and Control Enter gives it. Without an intent Control Enter gives none, since the bar shows several
   answers. The server checks everything again. */

import { closeMenus, closeOpenMenu, onMenuKey, pressItem, unfoldAndFocus } from "../components/menu.js";
import { endWatcher, isInView } from "../components/read_to_end.js";
import { toast } from "../components/toasts.js";
import { answer } from "../core/announce.js";
import { onChange } from "../core/page_changes.js";
import { onKey, visible } from "../core/shortcuts.js";
import { isChecked } from "./edit_check.js";
import { isOpening, shownRequest, tellOpening } from "./pane_requests.js";
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
  if (read.has(what) || isInView(end)) return unlock();
  button.dataset.unread = "";
  ends.watch(end);
}

function unlock() {
  read.add(watched.what);
  delete watched.button.dataset.unread;
}

/** Say what a second press is for: lines that were not loaded, and what the server names besides. */
function countUnshown() {
  const button = approveButton(bar());
  if (!button || !("againShown" in button.dataset)) return;
  const lines = [...document.querySelectorAll("#effect [data-unshown]")];
  const count = lines.reduce((sum, line) => sum + Number(line.dataset.unshown), 0);
  const unshown = count ? `${count} lines were not shown` : "";
  const reason = [unshown, button.dataset.againShown].filter(Boolean).join(", ");
  button.form.elements.shown.value = count ? "" : "all";
  if (button.dataset.again === reason) return;
  disarm();
  if (reason) button.dataset.again = reason;
  else delete button.dataset.again;
  button.querySelector("[data-press-reason]").textContent = reason;
}

function arm(button) {
  button.classList.add("armed");
  answer(`Approve: press again, ${button.dataset.again}.`);
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
  } else {
    const twice = button.form.elements.confirmed;
    if (twice) twice.value = button.dataset.again ? "1" : "";
    disarm(); // if it is not sent after all, two presses are needed again
  }
}

/** Make the bar the answer that is written next, or offer all answers again if `intent` is empty. */
function write(form, intent) {
  if (intent) form.dataset.intent = intent;
  else delete form.dataset.intent;
  for (const button of form.querySelectorAll("[data-answer]")) {
    button.hidden = intent ? button.value !== intent : !("writes" in button.dataset);
  }
  const [label, note] = [form.querySelector("label[for=note]"), form.elements.comment];
  form.querySelector("[data-setback=comment]")?.remove(); // it was about the answer that is written no more
  note.removeAttribute("aria-invalid");
  note.removeAttribute("aria-describedby");
  label.textContent = intended(form)?.dataset.note ?? label.dataset.label;
  note.placeholder = intent ? "" : label.textContent; // the label of an answer is visible
}

/** Return the button of the answer that is being written. */
function intended(form) {
  return form.dataset.intent && form.querySelector(`[data-answer][value="${CSS.escape(form.dataset.intent)}"]`);
}

/** Send an answer that takes a note; if the note is empty, ask for it first. */
function answerWith(form, intent) {
  const note = form.elements.comment;
  disarm();
  if (form.dataset.intent !== intent) write(form, intent);
  if (note.value.trim()) return (intended(form).click(), true);
  closeMenus();
  note.focus();
  answer(`${form.querySelector("label[for=note]").textContent}. Then press Control Enter to send it.`);
  return true;
}

function askForReason() {
  const reject = openForm()?.querySelector("[data-writes=reject]");
  return reject?.checkVisibility() ? answerWith(reject.form, "reject") : undefined;
}

function offerAll(form) {
  write(form, "");
  answer("All answers are offered again");
}

document.addEventListener("click", (event) => {
  const back = event.target.closest("[data-all-answers]");
  if (!back) return;
  event.preventDefault();
  offerAll(back.closest("form"));
});

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

// A first press on an answer without its note asks for the note; the second one sends it.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("form:is([data-decide], [data-several]) [data-writes]");
    const form = button?.closest("form");
    if (!button || event.defaultPrevented || form.dataset.intent === button.dataset.writes) return;
    if (button.matches("[data-answer]") && form.elements.comment.value.trim()) return;
    event.preventDefault();
    event.stopPropagation();
    answerWith(form, button.dataset.writes);
  },
  true,
);

document.addEventListener("toolgate:send", (event) => {
  const form = event.target.closest("form[data-decide], form[data-several]");
  if (!form) return;
  event.preventDefault();
  const isEdit = form.id === "editing";
  if (isEdit && event.target.name !== "comment" && !isChecked()) form.querySelector("#edit-check").click();
  else if (isEdit) approveButton(form)?.click();
  else if (intended(form)) intended(form).click();
  else tellToChoose();
});

function tellToChoose() {
  const text = "Nothing was sent. Choose an answer first: leave the note with Esc, then press its key.";
  toast(text);
  answer(text);
}

document.addEventListener("toolgate:leave", (event) => {
  const form = event.target.closest("form[data-intent]");
  if (form) offerAll(form);
});

// What redraws the request, for example a claim or a change elsewhere, does not end the answer that is being written.
let writing = {};
document.addEventListener("htmx:beforeSwap", () => {
  writing = { request: shownRequest(), intent: document.querySelector("form[data-intent]")?.dataset.intent };
});
document.addEventListener("htmx:afterSwap", (event) => {
  const form = bar();
  const isAnswer = event.detail.requestConfig?.path.includes("/decision/");
  if (form && writing.intent && !isAnswer && shownRequest() === writing.request && form.id !== "editing") {
    write(form, writing.intent);
  }
  lock(); // before the request is drawn, so that the bar does not change under the pointer
});

function stopWriting() {
  const form = document.querySelector("form[data-intent]");
  if (form) offerAll(form);
  return form !== null;
}

function leave() {
  const link = visible("[data-leave]");
  link?.click();
  return Boolean(link);
}

/** With several requests selected, an answer key opens them together. */
function forSelection() {
  if (document.querySelector("#several .decide")) return false;
  const opens = answerTogether();
  if (opens) disarm();
  return opens;
}

function onAnswerKey(key, action) {
  onKey(key, () => {
    if (isOpening()) {
      tellOpening();
      return true;
    }
    return forSelection() || action();
  });
}

onAnswerKey("a", () => undefined); // the element with data-key="a" is pressed
onAnswerKey("d", askForReason);
for (const key of ["r", "c", "s", "m", "w"]) {
  onMenuKey(key, (item) => (item.dataset.writes ? answerWith(bar(), item.dataset.writes) : pressItem(item)));
}
onKey("q", () => visible("#thread") !== undefined && unfoldAndFocus("ask"));
onKey("Escape", () => disarm() || closeOpenMenu() || stopWriting() || clearSelection() || leave());
onChange(lock);
onChange(countUnshown);
