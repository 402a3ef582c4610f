/* Several at once: X selects the current request, Shift X all from the last one, boxes do the same by mouse. Only requests
   that can be approved together are selected together; the others say why not. The choice outlives a list that a socket
   replaced. While anything is selected, the bar of the selection stands in place of the decision bar. What is new in a list that somebody points at is announced, never moved. */

import { answer } from "../core/announce.js";
import { changed, onChange } from "../core/page_changes.js";
import { onKey, visible } from "../core/shortcuts.js";
import { reopen } from "../components/list_navigation.js";
import { toast } from "../components/toasts.js";
import { holds, release } from "../core/fragments.js";
import { isSending } from "./pane_requests.js";

const picked = new Set();
let last = "";
let coming = [];

function boxes() {
  return [...document.querySelectorAll("[data-pick]")];
}

function itemsOf(list) {
  return [...list.querySelectorAll("[data-item]")];
}

function idsOf(list) {
  return itemsOf(list).map((item) => item.id);
}

function pick(box, on) {
  box.checked = on;
  if (on) picked.add(box.value);
  else picked.delete(box.value);
}

/** Return the reason for which a request cannot be selected with those that are; empty if it can. */
function objection(box) {
  const other = boxes().find((each) => each.checked && each !== box);
  if (!other) return "";
  const alone = box.dataset.alone ?? other.dataset.alone;
  if (alone) return alone;
  const tools = `${other.dataset.pick} is selected: only requests of one tool can be approved together.`;
  return box.dataset.pick === other.dataset.pick ? "" : tools;
}

function tell() {
  const form = document.getElementById("bulk");
  if (!form) return;
  const checked = boxes().filter((box) => box.checked);
  form.toggleAttribute("data-any", checked.length > 0);
  form.toggleAttribute("data-one", checked.length === 1);
  form.querySelector("[data-picked]").textContent = `${checked.length} selected`;
  for (const box of boxes()) {
    const why = box.checked ? "" : objection(box);
    if (why) box.setAttribute("aria-disabled", "true");
    else box.removeAttribute("aria-disabled");
    box.parentElement.title = why;
  }
}

/** Say why a request is not selected. */
function refuse(box, why) {
  pick(box, false);
  toast(why);
  answer(why);
}

function toggle(range) {
  const all = boxes();
  const current = visible("[data-list] [data-item][aria-current]")?.querySelector("[data-pick]");
  if (!current) return false;
  const from = all.findIndex((box) => box.value === last);
  const to = all.indexOf(current);
  const chosen = range && from >= 0 ? all.slice(Math.min(from, to), Math.max(from, to) + 1) : [current];
  const isOn = chosen.length > 1 || !current.checked;
  const refused = [];
  for (const box of chosen) {
    const why = isOn && !box.checked ? objection(box) : "";
    if (why) refused.push([box, why]);
    else pick(box, isOn);
  }
  last = current.value;
  tell();
  answer(`${picked.size} selected`);
  if (refused.length) refuse(...refused[0]);
  return true;
}

function bulk() {
  return document.querySelector("#bulk[data-any]");
}

/** Open the selected requests together; false when none is selected. */
export function answerTogether() {
  const form = bulk();
  if (form && !document.querySelector("#several .decide")) form.querySelector("button:not([type])").click();
  return form !== null;
}

/** Select nothing any more; false when nothing was selected. */
export function clearSelection() {
  if (!bulk()) return false;
  giveUp();
  answer("Nothing selected");
  return true;
}

function clear() {
  picked.clear();
  for (const box of boxes()) box.checked = false;
  tell();
}

/** Clear the selection, and leave the page of several: it would go on answering what is selected no more. */
function giveUp() {
  clear();
  if (document.querySelector("#several .decide")) reopen();
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick]")) {
    const why = event.target.checked ? objection(event.target) : "";
    if (why) return refuse(event.target, why);
    pick(event.target, event.target.checked);
    last = event.target.value;
    tell();
  }
  if (event.target.name === "item" && event.target.closest("[data-several]")) countChecked();
});

/** Make the buttons that answer several requests say how many are checked. */
function countChecked() {
  const several = document.querySelector("[data-several]");
  const count = several.querySelectorAll("[name=item]:checked").length;
  for (const place of several.querySelectorAll("[data-checked]")) place.textContent = String(count);
  for (const button of several.querySelectorAll("[name=verdict]")) button.disabled = count === 0;
}

// A request that expires while several are shown is struck through and no longer checked.
const ends = new WeakMap();
let expiry;

function expireRows() {
  clearTimeout(expiry);
  const now = performance.now();
  const rows = [...document.querySelectorAll("[data-several] tr[data-seconds-left]:not(.over)")];
  for (const row of rows) if (!ends.has(row)) ends.set(row, now + Number(row.dataset.secondsLeft) * 1000);
  const over = rows.filter((row) => ends.get(row) <= now);
  for (const row of over) {
    row.classList.add("over");
    Object.assign(row.querySelector("[name=item]"), { checked: false, disabled: true });
  }
  if (over.length) countChecked();
  const left = rows.filter((row) => !over.includes(row)).map((row) => ends.get(row) - now);
  if (left.length) expiry = setTimeout(expireRows, Math.min(...left, 3_600_000) + 50);
}

onChange(expireRows);
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-unpick]")) giveUp();
  if (event.target.closest("#news")) showTheNew();
});

// After an answer the choice is used up, and so it is once a single request that is answered on its own is open.
document.addEventListener("htmx:afterRequest", (event) => {
  const answered = event.target.matches?.("[data-several]");
  const opened = event.target.id === "bulk" && !document.querySelector("#several");
  if ((answered || opened) && event.detail.successful) clear();
});

function showTheNew() {
  document.getElementById("news").hidden = true;
  release("queue");
  changed();
}

document.addEventListener("toolgate:held", (event) => {
  if (event.detail.root.hasAttribute("data-gone") && event.detail.old.matches("[data-item]")) {
    event.detail.old.dataset.over = "";
  }
  if (event.detail.old.id !== "queue") return;
  coming = idsOf(event.detail.root);
  for (const item of itemsOf(event.detail.old)) item.toggleAttribute("data-over", !coming.includes(item.id));
  tellNews();
});

/** Announce held changes of the list, except those of the viewer's own answer while it is being sent. */
function tellNews() {
  const [news, list] = [document.getElementById("news"), document.getElementById("queue")];
  if (!news || !list) return;
  const shown = idsOf(list);
  const fresh = coming.filter((id) => !shown.includes(id)).length;
  news.hidden = isSending() || !holds("queue") || coming.join() === shown.join();
  news.firstElementChild.textContent = fresh ? `${fresh} new, press` : "The list has changed, press";
}

document.addEventListener("htmx:afterRequest", () => setTimeout(tellNews)); // after the end of what was on its way

onKey("x", (event) => toggle(event.shiftKey));
onChange(() => {
  for (const box of boxes()) if (picked.has(box.value)) box.checked = true;
  tell();
});
