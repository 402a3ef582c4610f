/* Puts fragments into the page by id. What a person is using is left alone until they let go: an element that holds
   the focus, an open disclosure, selected text or something typed, and a list under the pointer. The newest wins. */

import { changed, onChange } from "./page_changes.js";

const FIELDS = "input, textarea, select";
const [SLICE_MS, LEAST] = [12, 16]; // fragments: on a busy machine a slice of time alone would fit only a few
const TELL_MS = 200;
const waiting = [];
let timer;
let untold; // since when the page does not know of changes
const held = new Map();
const said = new Map();

// To ask any other element how far it is scrolled would lay out the page anew for every fragment.
const scrolled = new WeakSet();
document.addEventListener("scroll", ({ target }) => scrolled.add(target), { capture: true, passive: true });

/** Replace, insert (data-into, data-at) or remove (data-gone) each root element of the fragments; one with data-moves
    goes to its place anew. Parts of a drawing come in an svg[data-parts], because outside of one they would be read as
    HTML. */
export function apply(fragments) {
  waiting.push(...fragments);
  work();
}

/** Apply what waits, in slices, so that the page answers in between. The page is told of the changes when all are
    applied, because its modules look through the whole page; while more and more comes, every TELL_MS. */
function work() {
  clearTimeout(timer);
  const until = performance.now() + SLICE_MS;
  let done = 0;
  while (done < waiting.length && (done < LEAST || performance.now() < until)) parse(waiting[done++]);
  waiting.splice(0, done);
  untold ??= performance.now();
  if (waiting.length) timer = setTimeout(work);
  if (waiting.length && performance.now() < untold + TELL_MS) return;
  untold = undefined;
  changed();
}

function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const root of [...template.content.children]) {
    const parts = root.matches("svg[data-parts]") ? [...root.children] : [root];
    for (const part of parts) place(document.adoptNode(part));
  }
}

function place(root) {
  const old = document.getElementById(root.id);
  if (!root.id || listOf(root)?.hasAttribute("data-held")) return;
  if ("said" in root.dataset) said.set(root.id, root);
  if (old && (isOver(old, root) || isOtherPage(old, root))) return;
  if (!old) insert(root);
  else if (old === document.activeElement && !old.matches(FIELDS)) refill(old, root);
  else if (isUsed(old)) hold(old, root);
  else {
    held.delete(root.id);
    if ("moves" in root.dataset) old.remove();
    if (old.isConnected) replace(old, root);
    else insert(root);
  }
}

/** Return the list into which an element belongs; one with data-held takes no news, and is fetched again later. */
function listOf(root) {
  return document.getElementById(root.dataset.into ?? "");
}

/** Keep the newest fragment until the element is let go; whoever shows that there is news is told. */
function hold(old, root) {
  for (const id of held.keys()) if (root.querySelector(`#${CSS.escape(id)}`)) held.delete(id);
  held.set(root.id, root);
  document.dispatchEvent(new CustomEvent("toolgate:held", { detail: { old, root } }));
}

/** Say whether a fragment waits until its element is let go. */
export function holds(id) {
  return held.has(id);
}

/** Put a held fragment into the page although its element is being used. */
export function release(id) {
  const root = held.get(id);
  const old = document.getElementById(id);
  held.delete(id);
  if (root && old) replace(old, root);
}

function replace(old, root) {
  if (root.hasAttribute("data-gone")) return old.remove();
  if (old.outerHTML === root.outerHTML) return;
  const scrollTop = scrolled.has(old) ? old.scrollTop : 0;
  old.replaceWith(root);
  if (scrollTop) root.scrollTop = scrollTop;
  window.htmx?.process(root);
}

/** Say whether a fragment is another page of a list than the one that is shown. */
function isOtherPage(old, root) {
  const pageOf = (element) => element.querySelector(":scope > [data-page]")?.dataset.page;
  return pageOf(old) !== undefined && pageOf(root) !== undefined && pageOf(old) !== pageOf(root);
}

/** Say whether a text is of a turn that was over when its place was drawn: one that goes on is drawn with a mark. */
function isOver(old, root) {
  return "said" in root.dataset && root.textContent !== "" && !("said" in old.dataset);
}

/** Forget what models have said: a socket that is opened is told of those that still speak. */
export function forgetSaid() {
  said.clear();
}

// The server never draws the text that a model is still writing: a part that is drawn meanwhile gets it from here.
onChange(() => {
  for (const [id, root] of said) {
    const target = document.getElementById(id);
    if (target && !target.textContent && "said" in target.dataset) replace(target, root);
  }
});

function insert(root) {
  const list = listOf(root);
  if (!list || root.hasAttribute("data-gone")) return;
  const before = document.getElementById(root.dataset.before ?? "");
  if (before?.parentElement === list) before.before(root);
  else if (root.dataset.at === "start") list.prepend(root);
  else list.append(root);
  const most = Number(list.dataset.keep ?? Infinity);
  const byAge = [...list.children];
  if (root.dataset.at !== "start") byAge.reverse();
  for (let over = byAge.length - most; over > 0 && byAge.length > 1;) {
    const oldest = byAge.pop();
    if (isUsed(oldest)) continue;
    oldest.remove();
    over--;
  }
  window.htmx?.process(root);
}

/** Bring the focused element itself up to date without taking the focus from it. */
function refill(old, root) {
  if (root.hasAttribute("data-gone")) return held.set(root.id, root);
  for (const { name } of [...old.attributes]) if (!root.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...root.attributes]) old.setAttribute(name, value);
  old.replaceChildren(...root.childNodes);
}

// Not asked for each fragment: the page would be laid out anew for every answer.
let hasSelection = false;
document.addEventListener("selectionchange", () => {
  hasSelection = !getSelection().isCollapsed;
});

function isUsed(element) {
  return (
    element.closest("[data-still]:hover") !== null ||
    element.contains(document.activeElement) ||
    element.matches("details[open], dialog[open]") ||
    element.querySelector("details[open], dialog[open], [data-toggle][aria-expanded=true]") !== null ||
    (hasSelection && getSelection().containsNode(element, true)) ||
    [...element.querySelectorAll(FIELDS)].some(isTouched)
  );
}

/** Say whether someone has typed into a field or chosen something else in it. */
export function isTouched(field) {
  if (field.matches("[data-pick]")) return false;
  if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
  if (field.matches("select")) return isChosen(field);
  return field.type !== "hidden" && field.value !== field.defaultValue;
}

/** A select in which no option is marked as chosen begins with its first. */
function isChosen(select) {
  const options = [...select.options];
  const isMarked = options.some((option) => option.defaultSelected);
  if (!isMarked && !select.multiple) return select.selectedIndex > 0;
  return options.some((option) => option.selected !== option.defaultSelected);
}

let due = false;
function retry() {
  if (!held.size || due) return;
  due = true;
  setTimeout(() => {
    due = false;
    const all = [...held.values()];
    held.clear();
    all.forEach(place);
    changed();
  }, 50);
}

for (const name of ["focusout", "click", "selectionchange", "input", "mouseover"]) {
  document.addEventListener(name, retry);
}
document.addEventListener("toggle", retry, true);
document.addEventListener("htmx:afterSwap", () => {
  for (const id of held.keys()) if (!document.getElementById(id)) held.delete(id);
});
