/* Lets a plan's timeline go on between two drawings of the server: while a step works, the open bars reach the present
   and what is over shrinks with the scale. The next drawing replaces all of it. */

import { now } from "../components/relative_time.js";
import { isLive } from "../core/connection.js";

const PRESENT = 94; // in percent, where plans/web/plan/timeline.py draws "now"
const NARROWEST = 0.8;
const LABEL_WIDTH = 20;

/** Return the percentage at which the server drew an attribute. */
function drawn(element, name) {
  const key = name === "x" ? "drawnX" : "drawnWidth";
  element.dataset[key] ??= parseFloat(element.getAttribute(name));
  return Number(element.dataset[key]);
}

function put(element, name, percent) {
  element.setAttribute(name, `${percent.toFixed(2)}%`);
}

function shrinkLabels(axis, share) {
  let right = PRESENT - LABEL_WIDTH / 2;
  for (const label of [...axis.querySelectorAll("text:not(.now-label)")].toReversed()) {
    const x = drawn(label, "x") * share;
    put(label, "x", x);
    label.toggleAttribute("hidden", x > 0 && x + LABEL_WIDTH > right);
    right = x;
  }
}

function goOn() {
  const axis = document.querySelector("#axis[data-seconds]");
  if (!axis || !isLive()) return;
  const seconds = Number(axis.dataset.seconds);
  const share = seconds / (seconds + Math.max(0, (now() - Date.parse(axis.dataset.at)) / 1000));
  for (const bar of document.querySelectorAll("#steps .bar")) {
    const x = drawn(bar, "x") * share;
    put(bar, "x", x);
    put(bar, "width", Math.max(NARROWEST, "open" in bar.dataset ? PRESENT - x : drawn(bar, "width") * share));
  }
  shrinkLabels(axis, share);
}

setInterval(goOn, 1000);
