/* Keeps relative times true: [data-ago] and [data-left] each 15 s, [data-since] each second, on the server's clock.
   All clocks stop while the page is disconnected. The words are those of catalog/ui/labels.py;
   the date of a [data-ago] comes with it, in the formats of the reader. */

import { onChange } from "../core/page_changes.js";
import { isLive } from "../core/connection.js";

const skew = Date.parse(document.body.dataset.now ?? "") - Date.now() || 0;
const UNITS = [
  [60, 1, "s"],
  [3600, 60, "min"],
  [86400, 3600, "h"],
];
const LEFT_UNITS = [
  [60, 1, "s"],
  [60, 60, "min"],
  [48, 3600, "h"],
];

/** Return the moment on the server's clock, in milliseconds. */
export function now() {
  return Date.now() + skew;
}

function secondsSince(time) {
  return Math.floor((now() - Date.parse(time.dateTime)) / 1000);
}

function ago(time) {
  const seconds = secondsSince(time);
  if (seconds < 5) return "just now";
  for (const [limit, size, unit] of UNITS) if (seconds < limit) return `${Math.floor(seconds / size)} ${unit} ago`;
  return seconds < 2 * 86400 ? "yesterday" : time.dataset.ago;
}

function left(time) {
  const seconds = Math.round((Date.parse(time.dateTime) - now()) / 1000);
  time.classList.toggle("text-warn", seconds < 300 && seconds >= 60);
  time.classList.toggle("text-danger", seconds < 60);
  if (seconds <= 0) return "no time left";
  for (const [limit, size, unit] of LEFT_UNITS) {
    const count = Math.round(seconds / size);
    if (count < limit) return `${count} ${unit} left`;
  }
  return `${Math.round(seconds / 86400)} days left`;
}

function since(time) {
  const seconds = Math.max(0, secondsSince(time));
  const minutes = Math.floor(seconds / 60);
  const two = (number) => String(number).padStart(2, "0");
  if (!minutes) return `${seconds} s`;
  if (minutes < 60) return `${minutes} min ${two(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

function retell(mark, say) {
  if (!isLive()) return;
  for (const time of document.querySelectorAll(`time[${mark}]`)) {
    const text = say(time);
    if (time.textContent !== text) time.textContent = text;
  }
}

function slow() {
  retell("data-ago", ago);
  retell("data-left", left);
}

setInterval(slow, 15000);
setInterval(() => retell("data-since", since), 1000);
onChange(slow);
