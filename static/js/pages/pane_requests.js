/* One thing at a time in the pane. While a request is on its way into it, nothing of the one before is answered: what is
   marked in the list is not what stands there. While an answer is on its way, no other request is opened: what comes back
   says which is next and offers to undo. Whoever asks for one is told so, once for each answer. */

import { answer } from "../core/announce.js";
import { changed } from "../core/page_changes.js";
import { toast } from "../components/toasts.js";

const opening = new Set();
const sending = new Set();
const disabled = new Set();
let isTold = false;

/** Say whether a request is on its way into the pane. */
export function isOpening() {
  return opening.size > 0;
}

/** Say that nothing is answered while a request is on its way into the pane. */
export function tellOpening() {
  answer("The request is being opened. Press again when it is there.");
}

/** Say whether an answer is on its way. */
export function isSending() {
  return sending.size > 0;
}

/** Say that nothing else is opened while an answer is on its way, unless that was said of this one. */
export function tellToWait() {
  if (!isTold) answer("Your answer is being sent. Press again when that is done.");
  isTold = true;
}

function intoThePane(event) {
  return event.detail.target?.id === "pane";
}

function reads(event) {
  return event.detail.requestConfig.verb === "get";
}

/** Say whether a person asked for it: the pane asks for its own part too, when a request was looked at for a while. */
function isPressed(event) {
  return ["click", "submit"].includes(event.detail.requestConfig.triggeringEvent?.type);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!intoThePane(event)) return;
  const early = opening.size > 0 && event.detail.elt.closest("#pane") !== null;
  const late = isSending() && reads(event);
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

/** Show that the request in the pane is about to leave: its bar takes no press. */
function dim() {
  const pane = document.getElementById("pane");
  pane.setAttribute("aria-busy", "true");
  for (const button of pane.querySelectorAll(":is(.decide, .decided) button:not(:disabled)")) {
    button.disabled = true;
    disabled.add(button);
  }
}

/** When nothing is on its way any more, what the pane shows can be answered, and the list marks it. */
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
