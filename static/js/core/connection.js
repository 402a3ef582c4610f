/* Says whether the page is live: a word in the header after 2 s without a socket, a banner with "as of" after 6 s,
   a browser that reports itself offline at once. Pages keep working; only their news stops. */

import { report } from "./announce.js";

const WORD_MS = 2000;
const BANNER_MS = 6000;
const retries = new Set();
let lost = false;
let ended = false;
let asOf = new Date();
let timers = [];

/** Tell whether what the page shows is kept up to date. */
export function isLive() {
  return document.documentElement.dataset.connection !== "down";
}

/** Call `retry` when the person or the network asks to connect again. */
export function onRetry(retry) {
  retries.add(retry);
}

/** All sockets are open. */
export function up() {
  if (ended) return;
  const wasDown = !isLive();
  lost = false;
  timers.forEach(clearTimeout);
  delete document.documentElement.dataset.connection;
  word("Live", "");
  banner(null);
  if (wasDown) report("Up to date");
}

/** A socket was lost. */
export function down() {
  if (lost || ended) return;
  lost = true;
  asOf = new Date();
  timers = navigator.onLine === false ? [] : [setTimeout(stall, WORD_MS), setTimeout(warn, BANNER_MS)];
  if (!timers.length) warn();
}

/** The server will not talk to this page, as it is, again: say why. */
export function end(what, { signIn = false, more = signIn ? "" : "What you see may be out of date." } = {}) {
  ended = true;
  timers.forEach(clearTimeout);
  document.documentElement.dataset.connection = "down";
  word("Not live", "gone");
  banner(what, more, signIn ? "sign-in" : "none");
  report(what);
}

/** Tell whether the server was said not to talk to this page again. */
export function isEnded() {
  return ended;
}

/** The person is signed in again: connect as if nothing had ended. */
export function resume() {
  if (!ended) return;
  ended = lost = false;
  banner(null);
  retryAll();
}

function stall() {
  document.documentElement.dataset.connection = "down";
  word(navigator.onLine === false ? "Offline" : "Reconnecting", "off");
}

function warn() {
  stall();
  const time = asOf.toLocaleTimeString("en-GB", { timeZone: document.body.dataset.timeZone || undefined });
  const offline = navigator.onLine === false;
  const more = `Showing the page as of ${time}.${offline ? "" : " Decisions still work."}`;
  banner(offline ? "You are offline." : "Reconnecting…", more, "retry");
}

function word(text, look) {
  const badge = document.getElementById("live");
  if (!badge) return;
  badge.hidden = false;
  badge.className = `live ${look}`.trim();
  badge.lastElementChild.textContent = text;
}

function banner(what, more = "", way = "none") {
  const box = document.getElementById("net");
  if (!box) return;
  box.hidden = what === null;
  box.querySelector("[data-what]").textContent = what ?? "";
  box.querySelector("[data-more]").textContent = more;
  box.querySelector("[data-retry]").hidden = way !== "retry";
  const link = box.querySelector("[data-sign-in]");
  link.hidden = way !== "sign-in";
  link.href = `${document.body.dataset.signIn}?next=${encodeURIComponent(location.pathname + location.search)}`;
}

function retryAll() {
  for (const retry of retries) retry();
}

document.addEventListener("click", (event) => event.target.closest("[data-retry]") && retryAll());
addEventListener("online", retryAll);
addEventListener("offline", () => {
  if (!document.querySelector("[data-live]")) return;
  timers.forEach(clearTimeout);
  if (!lost) asOf = new Date();
  lost = true;
  if (!ended) warn();
});
