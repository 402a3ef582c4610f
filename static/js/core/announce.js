/* The one live region. What the page reports by itself waits five seconds since the last, newest wins;
   the answer to something a person just did is said at once. */

const QUIET_MS = 5000;
let last = -QUIET_MS;
let timer = 0;

function say(text) {
  const region = document.getElementById("announce");
  if (!region) return;
  last = performance.now();
  region.textContent = "";
  requestAnimationFrame(() => {
    region.textContent = text;
  });
}

/** Answer a person's action. */
export function answer(text) {
  clearTimeout(timer);
  say(text);
}

/** Report something that happened elsewhere. */
export function report(text) {
  clearTimeout(timer);
  timer = setTimeout(() => say(text), Math.max(0, last + QUIET_MS - performance.now()));
}
