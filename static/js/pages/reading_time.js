/* Counts down the reading time that a policy requires before a request can be approved. The server checks it too. */

import { onChange } from "../core/page_changes.js";

let countdown;

/** Return the time that is left, as shown beside the button. */
export function timeLeft() {
  return document.querySelector("[data-wait-left]")?.textContent ?? "";
}

/* An edited request may fall under another policy: its note is another element and starts another countdown. */
function startCountdown() {
  const button = document.querySelector("form[data-decide] [name=verdict][value=approve]");
  const note = document.querySelector("[data-wait-note]");
  if (!button || !note) return void delete button?.dataset.wait;
  if (countdown?.note === note) return;
  clearInterval(countdown?.timer);
  button.dataset.wait = note.dataset.waitNote;
  const end = performance.now() + Number(note.dataset.waitNote) * 1000;
  const tick = () => {
    const left = Math.ceil((end - performance.now()) / 1000);
    const place = document.querySelector("[data-wait-left]");
    if (place) place.textContent = `${Math.max(0, left)} s`;
    if (left > 0 && note.isConnected) return;
    clearInterval(countdown.timer);
    if (!note.isConnected) return;
    delete button.dataset.wait;
    note.hidden = true;
  };
  countdown = { note, timer: setInterval(tick, 250) };
}

onChange(startCountdown);
