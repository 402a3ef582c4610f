/* Keeps a plan's timeline on one scale, and lets it go on between two drawings of the server: while a step works, the
   open bars reach the present and what is over shrinks. The server sends the axis, and rows only when they change. */

import { now } from "../components/relative_time.js";
import { isLive } from "../core/connection.js";
import { onChange } from "../core/page_changes.js";

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

/** Bring all bars to the scale of the axis as it is now. A row that did not change keeps the scale of its drawing. */
function goOn() {
  const axis = document.querySelector("#axis[data-seconds]");
  if (!axis || !isLive()) return;
  const { seconds, at } = axis.dataset;
  const length = Number(seconds) + (at ? Math.max(0, (now() - Date.parse(at)) / 1000) : 0);
  for (const lane of document.querySelectorAll("#steps .lane[data-seconds]")) {
    const share = Number(lane.dataset.seconds) / length;
    for (const bar of lane.querySelectorAll(".bar")) {
      const x = drawn(bar, "x") * share;
      put(bar, "x", x);
      put(bar, "width", Math.max(NARROWEST, "open" in bar.dataset ? PRESENT - x : drawn(bar, "width") * share));
    }
  }
  if (at) shrinkLabels(axis, Number(seconds) / length);
}

setInterval(goOn, 1000);
onChange(goOn);
