/* Tells modules that parts of the page were replaced, by htmx or by a socket. */

const listeners = new Set();
let due = false;

/** Call `listener` now and after every change of the page, at most once a frame. */
export function onChange(listener) {
  listeners.add(listener);
  listener();
}

/** Say that the page has changed. */
export function changed() {
  if (due) return;
  due = true;
  queueMicrotask(() => {
    due = false;
    for (const listener of listeners) listener();
  });
}

for (const name of ["htmx:afterSettle", "htmx:oobAfterSwap"]) document.addEventListener(name, changed);

// Requests in flight: the stylesheet draws a line, and only after 300 ms. Counted by the request itself, because htmx tells
// the end of one that was replaced to its element, which may have left the page by then.
let inFlight = 0;
const count = (step) => () => {
  inFlight += step;
  document.documentElement.toggleAttribute("data-busy", inFlight > 0);
};
document.addEventListener("htmx:beforeSend", ({ detail: { elt, xhr } }) => {
  if (elt.matches('[hx-trigger^="every"]')) return; // nobody waits for what the page asks by itself
  xhr.addEventListener("loadstart", count(1));
  xhr.addEventListener("loadend", count(-1));
});
