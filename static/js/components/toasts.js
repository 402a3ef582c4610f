/* Short messages. One with data-seconds counts down and can be undone until then, and then leads to the outcome; the
   others disappear after six seconds, or fifteen if they have a button. They stand above the bar at the bottom of the window, whose height is published as --bar-height. */

import { answer } from "../core/announce.js";
import { changed, onChange } from "../core/page_changes.js";
import { onKey, visible } from "../core/shortcuts.js";
import { isSending, tellToWait } from "../pages/pane_requests.js";

const STAY_MS = 6000;
const STAY_WITH_BUTTON_MS = 15000;
const started = new WeakSet();

/** Show a short message. */
export function toast(text) {
  const area = document.getElementById("toasts");
  if (!area) return;
  const box = document.createElement("div");
  box.className = "toast";
  box.append(Object.assign(document.createElement("span"), { textContent: text }));
  for (const old of area.querySelectorAll(".toast:not([data-seconds])")) old.remove(); // what can be undone stays
  area.prepend(box);
  changed();
}

function countDown(box) {
  const end = performance.now() + Number(box.dataset.seconds) * 1000;
  const place = box.querySelector("[data-countdown]");
  const timer = setInterval(() => {
    const left = Math.ceil((end - performance.now()) / 1000);
    if (left > 0 && place) place.textContent = `${left} s`;
    if (left > 0 && box.isConnected) return;
    clearInterval(timer);
    if (box.isConnected) showFinal(box);
  }, 250);
}

/* What can no longer be undone says what happens now, and leads to it, for a while. Only the latest one stands. */
function showFinal(box) {
  for (const old of document.querySelectorAll(".toast:has([data-when-final]):not([data-seconds])")) old.remove();
  box.removeAttribute("data-seconds");
  for (const part of box.querySelectorAll("form, [data-until-final]")) part.remove();
  for (const part of box.querySelectorAll("[data-when-final]")) part.hidden = false;
  setTimeout(() => box.remove(), STAY_WITH_BUTTON_MS);
}

/** Undo the last decision, and no earlier one: one that is final, or still being sent, leaves nothing to undo. */
onKey("z", () => {
  if (isSending()) return (tellToWait(), true);
  if (visible("[data-key=z]")) return undefined; // it is pressed
  const text = "Nothing to undo: your last decision is final or has taken effect.";
  toast(text);
  answer(text);
  return true;
});

/* Beside a decided request, the button that takes it back goes when the time for it is over. */
onChange(() => {
  for (const button of document.querySelectorAll("[data-undo]")) {
    if (started.has(button)) continue;
    started.add(button);
    setTimeout(() => button.remove(), Number(button.dataset.undo) * 1000);
  }
});

onChange(() => {
  for (const box of document.querySelectorAll(".toast")) {
    if (started.has(box)) continue;
    started.add(box);
    if (box.dataset.seconds) countDown(box);
    else setTimeout(() => box.remove(), box.querySelector("form") ? STAY_WITH_BUTTON_MS : STAY_MS);
  }
});

const BARS = ".decide, .decided, .bulk, .tabbar";
const sizes = new ResizeObserver(measureBar);
let measured = [];

/** Publish the height of the bar that covers the bottom of the window, or 0. */
function measureBar() {
  const tops = [...document.querySelectorAll(BARS)]
    .filter((bar) => bar.checkVisibility())
    .map((bar) => bar.getBoundingClientRect())
    .filter((box) => Math.round(box.bottom) >= innerHeight && box.top < innerHeight)
    .map((box) => innerHeight - box.top);
  document.documentElement.style.setProperty("--bar-height", `${Math.round(Math.max(0, ...tops))}px`);
}

onChange(() => {
  const bars = [...document.querySelectorAll(BARS)];
  if (bars.length === measured.length && bars.every((bar, place) => bar === measured[place])) return;
  sizes.disconnect();
  for (const bar of bars) sizes.observe(bar);
  measured = bars;
  measureBar();
});
addEventListener("resize", measureBar);
