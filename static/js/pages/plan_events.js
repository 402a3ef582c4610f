/* The events of a plan. While Follow is on, the newest line of each step comes in at the top, and lists with a filter or
   of one step are fetched again; otherwise the list is held, and a button says how many events are new. A step opens to
   show its events. */

import { onChange } from "../core/page_changes.js";

const PAUSE_MS = 1000;
const newest = () => Number(document.getElementById("last-event")?.textContent.slice(1));
const drawn = () => document.getElementById("event-list");
let list;
let shown; // the number of the last event in the list
let isFollowing = true;
let timer;

function follows() {
  return isFollowing && !("later" in drawn().dataset);
}

function fetchList() {
  window.htmx?.trigger(drawn(), "refresh");
}

function fetchLines(group) {
  const lines = group.querySelector("[hx-get]");
  if (lines) window.htmx?.trigger(lines, "lines");
}

// To scroll a list that is at its top would lay out the page for every event.
let isScrolled = false;
document.addEventListener(
  "scroll",
  ({ target }) => {
    if (target.id === "events") isScrolled = target.scrollTop > 0;
  },
  { capture: true, passive: true },
);

function scrollUp() {
  if (isScrolled) document.getElementById("events")?.scrollTo({ top: 0 });
}

/** Bring the list to what Follow says. */
function update() {
  if (!drawn()) return;
  if (drawn() !== list) {
    list = drawn();
    shown = Number(list.dataset.seq);
  }
  document.getElementById("follow").checked = isFollowing; // the card may have been replaced
  const events = document.getElementById("events");
  events?.toggleAttribute("data-held", !follows());
  if (events && follows()) shown = newest();
  const behind = newest() - shown;
  const news = document.getElementById("event-news");
  news.hidden = follows() || behind <= 0;
  if (!news.hidden) news.textContent = `${behind} new ${behind === 1 ? "event" : "events"}. Show`;
  if (!follows()) return;
  if (events) {
    if (!events.querySelector("details[open]") && !events.contains(document.activeElement)) {
      requestAnimationFrame(scrollUp);
    }
  } else if (behind > 0 && !timer) {
    timer = setTimeout(() => {
      timer = undefined;
      if (drawn() && follows() && !drawn().contains(document.activeElement)) fetchList();
    }, PAUSE_MS);
  }
}

document.addEventListener("change", ({ target }) => {
  if (target.id !== "follow") return;
  isFollowing = target.checked;
  if (isFollowing) fetchList();
  else update();
});

document.addEventListener("click", ({ target }) => target.closest("#event-news") && fetchList());

document.addEventListener(
  "toggle",
  ({ target }) => target.open && target.closest("#event-list") && fetchLines(target),
  true,
);

// An open step keeps its place, and its events are brought up to date.
document.addEventListener("toolgate:held", ({ detail: { old } }) => {
  const group = old.closest("#events")?.querySelector(`#${CSS.escape(old.id)} > details[open]`);
  if (group) fetchLines(group);
});

onChange(update);
