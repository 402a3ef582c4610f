/* The decision bar. Approve stays locked until the end of the change was on screen and the policy's time to look is
   over; what cannot be undone takes a second press within four seconds; answers that need words ask for them first.
   The server checks everything again. */

import { answer } from "../core/announce.js";
import { onChange } from "../core/page_changes.js";
import { onKey, visible } from "../core/shortcuts.js";
import { answerTogether, clearSelection } from "./queue_selection.js";
import { toast } from "../components/toasts.js";
import { isOpening, tellOpening } from "./pane_requests.js";

const ARMED_MS = 4000;
const FRESH_MS = 700;
const seen = new Set();
let watcher;
let watched = {};
let disarmTimer;

function bar() {
  return document.querySelector("form[data-decide]");
}

/** The form whose approval counts for what is shown: of one request, or of several together. */
function answering() {
  return bar() ?? document.querySelector("form[data-several]");
}

function approveButton(form) {
  return form?.querySelector("[name=verdict][value=approve]");
}

/** What is being decided: another request, digest or edit is to be read anew. */
function subject(form) {
  if ("several" in form.dataset) return [...form.querySelectorAll("[name=item]")].map((box) => box.value).join();
  return form.dataset.decide + (document.getElementById("edited")?.textContent ?? "");
}

function watchTheEnd() {
  const form = answering();
  const button = approveButton(form);
  const end = document.getElementById("diff-end");
  const what = button && subject(form);
  if (watched.what === what && watched.button === button && watched.end === end) return;
  watcher?.disconnect();
  watched = { what, button, end };
  if (!button || !end) return;
  if (seen.has(what)) return void delete button.dataset.unread;
  button.dataset.unread = "";
  watcher = new IntersectionObserver(
    (entries, own) => {
      if (own !== watcher) return; // told late: the end of something else is watched by now
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.add(what);
      delete button.dataset.unread;
      watcher.disconnect();
    },
    { rootMargin: "0px 0px -60px" },
  );
  watcher.observe(end);
}

// The time to look that the policy asks for: the server counts it too. What an edit makes may fall under another rule.
let looking;
function countTheLook() {
  const button = approveButton(bar());
  const note = document.querySelector("[data-wait-note]");
  if (!button || !note) return void delete button?.dataset.wait;
  if (looking?.note === note) return;
  clearInterval(looking?.timer);
  button.dataset.wait = note.dataset.waitNote;
  const end = performance.now() + Number(note.dataset.waitNote) * 1000;
  const tick = () => {
    const left = Math.ceil((end - performance.now()) / 1000);
    const place = document.querySelector("[data-wait-left]");
    if (place) place.textContent = `${Math.max(0, left)} s`;
    if (left > 0 && note.isConnected) return;
    clearInterval(looking.timer);
    if (!note.isConnected) return;
    delete button.dataset.wait;
    note.hidden = true;
  };
  looking = { note, timer: setInterval(tick, 250) };
}

function arm(button) {
  button.classList.add("armed");
  answer(`Press again: ${button.dataset.again}.`);
  disarmTimer = setTimeout(disarm, ARMED_MS);
}

function disarm() {
  clearTimeout(disarmTimer);
  const button = document.querySelector(".btn.armed");
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
    answer(`Look at it a little longer: ${document.querySelector("[data-wait-left]")?.textContent ?? ""} left`);
  } else if (button.dataset.again && !button.classList.contains("armed")) {
    event.preventDefault();
    arm(button);
  } else if ("decide" in button.form.dataset) {
    const twice = button.form.elements.confirmed;
    if (twice) twice.value = button.dataset.again ? "1" : "";
    clearTimeout(disarmTimer);
  }
}

/** Send an answer that may need words; without any, ask for them first. */
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

function intended(form) {
  return form.querySelector(`[data-intent="${CSS.escape(form.dataset.intent ?? "")}"]`);
}

function askForReason() {
  const reject = bar()?.querySelector("[data-intent=reject]");
  return reject ? answerWith(reject) : undefined;
}

function closeMenus() {
  for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
}

/** Press what a key names inside the menu, which may be closed. */
function pressInMenu(key) {
  const item = document.querySelector(`.menu [data-menu-key="${key}"]`);
  if (!item) return undefined;
  if (item.dataset.intent) return answerWith(item);
  if (item.dataset.focusOn) return focusOn(item);
  item.closest("details.menu").open = true;
  if (item.matches("summary")) openInside(item);
  else item.click();
  return true;
}

function openInside(summary) {
  summary.parentElement.open = true;
  (summary.parentElement.querySelector("select, button") ?? summary).focus();
}

function focusOn(link) {
  closeMenus();
  document.getElementById(link.dataset.focusOn)?.focus();
  return true;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-focus-on]");
  if (link && document.getElementById(link.dataset.focusOn)) {
    event.preventDefault();
    focusOn(link);
  } else if (!event.target.closest("details.menu")) closeMenus();
  const chip = event.target.closest("[data-reason]");
  if (!chip) return;
  const note = chip.closest("form").elements.comment;
  note.value = chip.dataset.reason;
  note.focus();
});

// A request that opened by itself, after an answer to the one before, takes none for a moment: a second press was meant
// for the other.
let shown;
document.addEventListener("htmx:beforeSwap", () => {
  shown = shownNow();
});
document.addEventListener("htmx:afterSwap", (event) => {
  const opened = event.detail.target?.id === "pane" && event.detail.requestConfig?.verb !== "get";
  const form = bar();
  if (!opened || !form || shownNow() === shown) return;
  form.dataset.fresh = "";
  setTimeout(() => delete form.dataset.fresh, FRESH_MS);
});

function shownNow() {
  return document.getElementById("detail")?.dataset.shown;
}

// Capture, so that htmx never sees a press that must not count.
document.addEventListener(
  "click",
  (event) => {
    if (event.target.closest("form[data-fresh] [name=verdict]")) {
      event.preventDefault();
      event.stopPropagation();
      answer("This request has just opened. Look at it, then press again.");
    }
  },
  true,
);
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
  if (event.target.name !== "comment" && form.id === "editing" && !isChecked()) {
    form.querySelector("#edit-check").click();
  } else (intended(form) ?? approveButton(form))?.click();
});

// Edited arguments are checked when the last check was asked for after the last letter, and found nothing wrong.
const askedAt = new WeakMap();
let lettersTyped = 0;
let lettersChecked = 0;
function isChecked() {
  return document.querySelector("#edited[data-clean]") !== null && lettersChecked === lettersTyped;
}
document.addEventListener("input", (event) => {
  if (event.target.closest("#args-edit")) lettersTyped += 1;
});
document.addEventListener("htmx:beforeSend", (event) => askedAt.set(event.detail.xhr, lettersTyped));
document.addEventListener("htmx:afterSwap", (event) => {
  if (["edited", "pane"].includes(event.detail.target?.id)) lettersChecked = askedAt.get(event.detail.xhr);
});
document.addEventListener("focusout", (event) => {
  const form = event.target.closest?.("form[data-decide], form[data-several]");
  const stays = event.relatedTarget?.closest?.("[data-reason], [data-intent]");
  if (form && !stays && event.target.name === "comment" && !event.target.value.trim()) delete form.dataset.intent;
});

// On a phone the list and the request are two pages: their link is a link, and Back leads to the list.
document.addEventListener(
  "click",
  (event) => {
    if (event.target.closest("#queue a[hx-get]") && matchMedia("(max-width: 720px)").matches) event.stopPropagation();
  },
  true,
);
document.addEventListener(
  "submit",
  (event) => {
    if (event.target.id === "bulk" && matchMedia("(max-width: 720px)").matches) event.stopPropagation();
  },
  true,
);

for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, (event) => {
    if (!event.target.matches?.("#pane form")) return;
    const what = event.target.getAttribute("action").endsWith("/comment/") ? "what you wrote" : "your decision";
    toast(
      `Could not save ${what}. The request is still waiting; nothing ran. All that you wrote is still there: send it again.`,
    );
    answer(`Could not save ${what}`);
  });
}

/** The place of the open request among those of its list, and their number, as others answer and new ones come. */
function tellPlace() {
  const place = document.getElementById("place");
  const total = document.querySelector("#views [aria-current] b")?.textContent;
  const rows = [...document.querySelectorAll("#queue [data-item][id^=q-]:not([data-over])")];
  const at = rows.findIndex((row) => row.id === shownNow());
  if (!place || !total || at < 0 || isOpening()) return;
  const before = Number(document.querySelector("#queue [data-page]").dataset.page);
  place.textContent = `${before + at + 1} of ${total}`;
}

// What was written beside a request stays when it is drawn again, after a claim for instance; what was sent is used up.
let written = {};
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target?.id !== "pane") return;
  const sent = event.detail.requestConfig?.path ?? "";
  const fields = sent.endsWith("/comment/") ? ["note"] : ["note", "ask"];
  const values = fields.map((id) => [id, document.getElementById(id)?.value ?? ""]);
  written = { shown: shownNow(), values: values.filter(([, value]) => value) };
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id !== "pane" || !shownNow() || shownNow() !== written.shown) return;
  for (const [id, value] of written.values) {
    const field = document.getElementById(id);
    if (field && !field.value) field.value = value;
  }
});

function closeMenu() {
  const menu = document.querySelector("details.menu[open]");
  if (!menu) return false;
  menu.open = false;
  menu.querySelector("summary").focus();
  return true;
}

function leave() {
  const way = visible("[data-leave]");
  if (way) return (way.click(), true);
  return bar() ? (delete bar().dataset.intent, true) : false;
}

/** With several selected, a key that answers is about them: it opens them, and there it leads to what answers them. */
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
    if (isOpening()) return (tellOpening(), true);
    return forSelection(verdict) || action();
  });
}

onAnswerKey("a", "approve", () => undefined); // what carries the key is pressed
onAnswerKey("d", "reject", askForReason);
for (const key of ["r", "c", "s", "m", "w"]) onKey(key, () => pressInMenu(key));
onKey("q", () => {
  const field = visible("#ask");
  field?.focus();
  return Boolean(field);
});
onKey("Escape", () => disarm() || closeMenu() || clearSelection() || leave());
onChange(watchTheEnd);
onChange(countTheLook);
onChange(tellPlace);
