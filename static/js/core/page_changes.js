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

// A request in flight: the stylesheet draws a line, and only after 300 ms.
let inFlight = 0;
const flight = (step) => () => {
  inFlight = Math.max(0, inFlight + step);
  document.documentElement.toggleAttribute("data-busy", inFlight > 0);
};
document.addEventListener("htmx:beforeSend", flight(1)); // not beforeRequest: what is held back there never ends
document.addEventListener("htmx:afterRequest", flight(-1));
