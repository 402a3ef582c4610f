/* One thing at a time in the pane. While a request is on its way into it, nothing of the one before is answered: what is
   marked in the list is not what stands there. While an answer is on its way, no other request is opened: what comes back
   says which is next and offers to undo. Whoever asks for one is told so, once for each answer. */

import { answer } from "./announce.js";

const opening = new Set();
const sending = new Set();
let isTold = false;

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
  if (early && isPressed(event)) answer("The request is being opened. Press again when it is there.");
  else if (late && isPressed(event)) tellToWait();
  if (early || late) event.preventDefault();
});

document.addEventListener("htmx:beforeSend", (event) => {
  if (!intoThePane(event)) return;
  const { xhr } = event.detail;
  const turn = reads(event) ? opening : sending;
  if (turn === sending) isTold = false;
  turn.add(xhr);
  xhr.addEventListener("loadend", () => turn.delete(xhr));   // the end of whatever happens to it
});
