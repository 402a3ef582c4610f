/* One request at a time in the pane. While a request is loading into the pane, the one before it cannot be answered;
   while an answer is being sent, no other request can be opened: the response says which is next and offers to undo.
   A request that opened by itself takes no answer for a moment. */

import { answer } from "../core/announce.js";
import { changed } from "../core/page_changes.js";
import { toast } from "../components/toasts.js";

const FRESH_MS = 700;
const opening = new Set();
const sending = new Set();
const disabled = new Set();
let isTold = false;

/** Return the id of the row whose request is shown in the pane. */
export function shownRequest() {
  return document.getElementById("detail")?.dataset.shown;
}

/** Return whether a request is loading into the pane. */
export function isOpening() {
  return opening.size > 0;
}

/** Announce that the request that is loading cannot be answered yet. */
export function tellOpening() {
  answer("The request is being opened. Press again when it is there.");
}

/** Return whether an answer is being sent. */
export function isSending() {
  return sending.size > 0;
}

/** Announce, once for each answer, that nothing else is opened while it is being sent. */
export function tellToWait() {
  if (!isTold) answer("Your answer is being sent. Press again when that is done.");
  isTold = true;
}

function intoThePane(event) {
  return event.detail.target?.id === "pane" || isUndo(event);
}

/** Return whether a decision is being undone: the response redraws the pane too. */
function isUndo(event) {
  return event.detail.elt.closest?.("#toasts form[hx-swap=none]") !== null;
}

function reads(event) {
  return event.detail.requestConfig.verb === "get";
}

/** Return whether a person asked for it: the pane reloads its parts by itself too. */
function isPressed(event) {
  return ["click", "submit"].includes(event.detail.requestConfig.triggeringEvent?.type);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!intoThePane(event)) return;
  const early = opening.size > 0 && (event.detail.elt.closest("#pane") !== null || isUndo(event));
  const late = isSending(); // the response to a second one would find the form of the first gone, and the list unchanged
  if (early && isPressed(event)) tellOpening();
  else if (late && isPressed(event)) tellToWait();
  if (early || late) event.preventDefault();
});

document.addEventListener("htmx:beforeSend", (event) => {
  if (!intoThePane(event)) return;
  const { xhr } = event.detail;
  const turn = reads(event) ? opening : sending;
  if (turn === sending) isTold = false;
  turn.add(xhr);
  if (turn === opening && isPressed(event)) dim();
  xhr.addEventListener("loadend", () => {
    // the end of whatever happens to it
    turn.delete(xhr);
    queueMicrotask(settle); // one that a newer one replaced ends just before that is sent
  });
});

/** Disable the bar of the request that is about to be replaced. */
function dim() {
  const pane = document.getElementById("pane");
  pane.setAttribute("aria-busy", "true");
  for (const button of pane.querySelectorAll(":is(.decide, .decided) button:not(:disabled)")) {
    button.disabled = true;
    disabled.add(button);
  }
}

/** When nothing is loading any more, enable the bar again; the list marks the request that is shown. */
function settle() {
  if (isOpening()) return;
  document.getElementById("pane")?.removeAttribute("aria-busy");
  for (const button of disabled) button.disabled = false;
  disabled.clear();
  changed();
}

for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, (event) => {
    if (!intoThePane(event) || !reads(event) || !isPressed(event)) return;
    toast("Could not open that. What was open before is still shown.");
    answer("Could not open that");
  });
}

for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, (event) => {
    if (!event.target.matches?.("#pane form")) return;
    const isNote = event.target.getAttribute("action").endsWith("/comment/");
    const what = isNote ? "What you wrote" : "Your decision";
    const { status } = event.detail.xhr;
    const isRefused = status >= 400 && status < 500; // otherwise it may have been recorded before the answer was lost
    const said = isRefused ? `${what} was not saved.` : `No answer arrived. ${what} may have been saved.`;
    const next = isRefused || !isNote ? "Send it again: it counts once." : "Reload the page to see.";
    toast(`${said} All that you wrote is still there. ${next}`);
    answer(said);
  });
}

// The second press on a button was meant for what was there before: what has just opened by itself takes no answer.
// The stylesheet shows the time as the button fills.
let shownBefore;
document.addEventListener("htmx:beforeSwap", () => {
  shownBefore = shownRequest() ?? "";
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id !== "pane") return;
  const form = document.querySelector("form[data-decide], form[data-several]");
  const isAsked = event.detail.requestConfig?.verb === "get" && isPressed(event);
  const hasOpened = !isAsked && shownRequest() !== shownBefore;
  if (!form || !(hasOpened || ("several" in form.dataset && shownBefore))) return;
  form.dataset.fresh = "";
  setTimeout(() => delete form.dataset.fresh, FRESH_MS);
});
document.addEventListener(
  "click",
  (event) => {
    const form = event.target.closest("form[data-fresh] [name=verdict]")?.form;
    if (!form || ("several" in form.dataset && event.detail)) return; // several are opened by keys, not at the pointer
    event.preventDefault();
    event.stopPropagation();
    answer("This has just opened. Look at it, then press again.");
  },
  true,
);
