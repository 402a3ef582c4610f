/* Keeps a plan's timeline on one scale, and lets it go on between two drawings of the server: while a step works, the
   open bars reach the present and what is over shrinks. The server sends the axis, and rows only when they change. */

import { now } from "../components/relative_time.js";
import { isLive } from "../core/connection.js";
import { onChange } from "../core/page_changes.js";

const PRESENT = 94; // in percent, where plans/web/plan/timeline.py draws "now"
const NARROWEST = 0.8;
const LABEL_WIDTH = 20;
const SOON_MS = 200; // all rows are looked at, while steps may end many times a second

const drawings = new WeakMap();
const shares = new WeakMap();
const inView = new Set();
let known; // the list of which `inView` has the rows

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

/** Return the rows that are drawn: of many, those in view. Once they are known, the browser tells of changes; to ask
    each row again and again would style the whole page anew. */
function rowsInView() {
  const list = document.getElementById("steps");
  if (!list.closest(".waterfall.many")) return [...list.children];
  if (list !== known) {
    known = list;
    inView.clear();
    for (const row of list.children) if (row.checkVisibility({ contentVisibilityAuto: true })) inView.add(row);
  }
  for (const row of inView) if (!row.isConnected) inView.delete(row);
  return [...inView];
}

/** Bring all rows that are drawn to the scale of the axis. */
function goOn() {
  const axis = document.querySelector("#axis[data-seconds]");
  if (!axis || !isLive()) return;
  const length = lengthOf(axis.dataset);
  for (const row of rowsInView()) rescale(row, length);
  if (axis.dataset.at) shrinkLabels(axis, Number(axis.dataset.seconds) / length);
}

let due = false;
function goOnSoon() {
  if (due) return;
  due = true;
  setTimeout(() => {
    requestAnimationFrame(() => {
      due = false;
      goOn();
    });
  }, SOON_MS);
}

setInterval(goOn, 1000);
document.addEventListener(
  "contentvisibilityautostatechange",
  ({ target, skipped }) => {
    if (!target.matches("#steps > .row")) return;
    if (skipped) return void inView.delete(target);
    inView.add(target);
    const axis = document.querySelector("#axis[data-seconds]");
    if (axis) rescale(target, lengthOf(axis.dataset));
  },
  true,
);
onChange(goOnSoon);
