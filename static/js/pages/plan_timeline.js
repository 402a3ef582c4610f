/* Keeps a plan's timeline on one scale, and lets it go on between two drawings of the server: while a step works, the
   open bars reach the present and what is over shrinks. The server sends the axis, and rows only when they change. */

import { now } from "../components/relative_time.js";
import { isLive } from "../core/connection.js";
import { onChange } from "../core/page_changes.js";

const PRESENT = 94; // in percent, where plans/web/plan/timeline.py draws "now"
const NARROWEST = 0.8;
const LABEL_WIDTH = 20;

const drawings = new WeakMap();
const shares = new WeakMap();

/** Return the percentage at which the server drew an attribute. */
function drawn(element, name) {
  if (!drawings.has(element)) drawings.set(element, {});
  const values = drawings.get(element);
  values[name] ??= parseFloat(element.getAttribute(name));
  return values[name];
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

/** Return the seconds of the axis as it is now. */
function lengthOf({ seconds, at }) {
  return Number(seconds) + (at ? Math.max(0, (now() - Date.parse(at)) / 1000) : 0);
}

/** Bring the bars of a row to the scale of the axis. A row that did not change keeps the scale of its drawing. */
function rescale(row, length) {
  const lane = row.querySelector(".lane");
  const share = Number(lane.dataset.seconds) / length;
  if (shares.get(lane) === share || (!shares.has(lane) && share === 1)) return;
  shares.set(lane, share);
  for (const bar of lane.querySelectorAll(".bar")) {
    const x = drawn(bar, "x") * share;
    put(bar, "x", x);
    put(bar, "width", Math.max(NARROWEST, "open" in bar.dataset ? PRESENT - x : drawn(bar, "width") * share));
  }
}

/** Bring all rows that are drawn to the scale of the axis. */
function goOn() {
  const axis = document.querySelector("#axis[data-seconds]");
  if (!axis || !isLive()) return;
  const length = lengthOf(axis.dataset);
  const rows = [...document.getElementById("steps").children];
  // Asked before anything changes: to ask in between would lay out the page for each row.
  const drawnRows = rows.filter((row) => row.checkVisibility({ contentVisibilityAuto: true }));
  for (const row of drawnRows) rescale(row, length);
  if (axis.dataset.at) shrinkLabels(axis, Number(axis.dataset.seconds) / length);
}

let due = false;
function goOnWithNextFrame() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    goOn();
  });
}

setInterval(goOn, 1000);
document.addEventListener(
  "contentvisibilityautostatechange",
  ({ target, skipped }) => {
    const axis = document.querySelector("#axis[data-seconds]");
    if (axis && !skipped && target.matches("#steps > .row")) rescale(target, lengthOf(axis.dataset));
  },
  true,
);
onChange(goOnWithNextFrame);
