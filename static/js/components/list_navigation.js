/* J, K and the arrows move through [data-list] items; the current one carries aria-current.
   data-list="follow" opens each item in the pane beside it; other lists move the focus, so Enter opens the link. */

import { onChange } from "../core/page_changes.js";
import { onKey, visible } from "../core/shortcuts.js";
import { answer } from "../core/announce.js";
import { isPhone } from "../core/viewport.js";
import { isOpening, isSending, shownRequest, tellToWait } from "../pages/pane_requests.js";

const ITEM = "[data-item]";
const chosen = new Map();

function link(item) {
  return item.matches("a[href]") ? item : item.querySelector("a[href]");
}

/** Make an item the current one of its list. */
export function choose(item) {
  const list = item.closest("[data-list]");
  for (const other of list.querySelectorAll(`${ITEM}[aria-current]`)) {
    if (other !== item) other.removeAttribute("aria-current");
  }
  item.setAttribute("aria-current", "true");
  if (list.id) chosen.set(list.id, item.id);
}

function move(step) {
  const list = visible("[data-list]");
  const items = [...(list?.querySelectorAll(ITEM) ?? [])].filter((item) => item.checkVisibility());
  if (!items.length) return false;
  if (list.dataset.list === "follow" && isSending()) return (tellToWait(), true);
  const at = items.findIndex((item) => item.hasAttribute("aria-current"));
  const before = items.findIndex((item) => item.id === chosen.get(list.id));
  const next = items[at < 0 ? Math.max(0, before) : at + step];
  if (!next) return true;
  choose(next);
  next.scrollIntoView({ block: "nearest" });
  if (list.dataset.list === "follow") follow(next);
  else link(next)?.focus();
  return true;
}

function follow(item) {
  const target = link(item);
  answer(target?.textContent.trim() ?? "");
  target?.click();
}

/** Open the item again that was the current one of the list beside the pane, or its first. */
export function reopen() {
  const list = visible('[data-list="follow"]');
  const item = list?.querySelector(`#${CSS.escape(chosen.get(list.id) ?? "-")}`) ?? list?.querySelector(ITEM);
  if (item) follow(item);
}

function enter() {
  const at = document.activeElement;
  if (at && at !== document.body && at.matches("a, button, summary, [role=tab]")) return false;
  const current = visible(`[data-list] ${ITEM}[aria-current]`);
  const heading = visible("[data-focus]");
  if (current && heading) heading.focus();
  else if (current) link(current)?.click();
  return Boolean(current);
}

onKey("j", () => move(1));
onKey("k", () => move(-1));
onKey("ArrowDown", () => (document.activeElement?.closest("[data-list]") ? move(1) : false));
onKey("ArrowUp", () => (document.activeElement?.closest("[data-list]") ? move(-1) : false));
onKey("Enter", enter);

// A click makes an item the current one. A request that a person opened gets the focus at once, so that typing goes to
// it; one that J and K passed does not.
document.addEventListener("click", (event) => {
  const item = event.target.closest(`[data-list] ${ITEM}`);
  if (!item || !event.target.closest("a[href]")) return;
  if (item.closest("[data-list]").dataset.list === "follow" && isSending()) return; // it is not opened either
  choose(item);
});

let shownBefore;
document.addEventListener("htmx:beforeSwap", () => {
  shownBefore = shownRequest();
});
document.addEventListener("htmx:afterSwap", (event) => {
  scrollToTop(document.getElementById("detail"));
  const opened = event.detail.requestConfig?.triggeringEvent;
  const heading = event.detail.target?.querySelector?.("[data-focus]");
  if (document.activeElement?.closest("[data-keeps-focus]")) return; // a form that was sent to be checked goes on
  if (heading && (opened?.isTrusted || opened?.type === "submit" || opened?.target?.closest?.("[data-leave]"))) {
    heading.focus({ preventScroll: true });
  }
});

/** On phones, where the page itself scrolls, show another request, or an error, from the top. */
function scrollToTop(detail) {
  if (!detail || !isPhone()) return;
  if (detail.dataset.shown !== shownBefore || detail.querySelector("[role=alert]")) scrollTo(0, 0);
}

/** Return the item to mark: the one in the pane unless another is loading, or the one that was marked. */
function toMark(list) {
  const byId = (id) => list.querySelector(`#${CSS.escape(id ?? "-")}`);
  const shown = shownRequest();
  if (list.dataset.list === "follow" && shown && !isOpening()) return byId(shown);
  return list.querySelector(`${ITEM}[aria-current]`) ?? byId(chosen.get(list.id));
}

const revealed = new Map();

/** Scroll a list that scrolls by itself, beside the pane, once to each request that is opened; never the page. */
function reveal(list, item) {
  if (revealed.get(list.id) === item.id) return;
  revealed.set(list.id, item.id);
  if (getComputedStyle(list).overflowY !== "auto") return;
  const [outer, inner] = [list.getBoundingClientRect(), item.getBoundingClientRect()];
  list.scrollTop += Math.min(0, inner.top - outer.top) + Math.max(0, inner.bottom - outer.bottom);
}

// Lists and items keep their mark when a socket replaces them. While several requests are shown together, none is
// marked; J and K continue from the last one.
onChange(() => {
  const together = document.querySelector("[data-several]") !== null;
  for (const list of document.querySelectorAll("[data-list][id]")) {
    const current = together ? null : toMark(list);
    if (current) {
      choose(current);
      reveal(list, current);
    } else for (const item of list.querySelectorAll(`${ITEM}[aria-current]`)) item.removeAttribute("aria-current");
  }
});
