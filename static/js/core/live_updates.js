/* One socket for each [data-live] element. Messages: {"seq", "fragments": [html…], "announce"?}.
   The socket asks for everything after the number at which the page, or the part with [data-drawn-at], was drawn. After
   a lost connection it asks for everything after the last number, with full-jitter backoff. It sends nothing else. */

import { report } from "./announce.js";
import { onChange } from "./page_changes.js";
import * as connection from "./connection.js";
import { apply, forgetSaid } from "./fragments.js";

const FIRST_MS = 500;
const LONGEST_MS = 30000;
const STEADY_MS = 5000;
const LAST_WORDS = {
  4401: ["You were signed out.", { signIn: true, more: "What you typed stays here until you are back." }],
  4403: ["You no longer have access.", {}],
  4404: ["You no longer have access.", {}],
};
const feeds = new Map();
let gone = false;

class Feed {
  constructor(element) {
    this.element = element;
    this.path = element.dataset.live;
    this.seq = element.dataset.seq ? Number(element.dataset.seq) : null;
    this.failures = 0;
    this.connect();
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  connect() {
    clearTimeout(this.timer);
    if (gone || this.socket?.readyState <= WebSocket.OPEN) return;
    const url = new URL(this.path, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const after = this.seq ?? document.querySelector("[data-drawn-at]")?.dataset.drawnAt;
    if (after) url.searchParams.set("after", after);
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.addEventListener("open", () => this.opened());
    socket.addEventListener("message", (event) => this.hear(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => socket === this.socket && this.closed(event.code));
  }

  /** Drop a socket that may be dead without knowing it, and open another. */
  reconnect() {
    const old = this.socket;
    this.socket = null;
    hangUp(old);
    this.connect();
  }

  opened() {
    forgetSaid();
    this.steady = setTimeout(() => {
      this.failures = 0;
    }, STEADY_MS);
    tell();
  }

  hear(message) {
    const seq = message.seq ?? null;
    if (seq !== null && this.seq !== null && seq <= this.seq) return;
    apply(message.fragments ?? []);
    if (seq !== null) this.element.dataset.seq = this.seq = seq;
    if (message.announce) report(message.announce);
  }

  closed(code) {
    clearTimeout(this.steady);
    if (this.stopped) return;
    if (LAST_WORDS[code]) {
      gone = true;
      for (const feed of feeds.values()) feed.stop();
      connection.end(...LAST_WORDS[code]);
      return;
    }
    tell();
    const ceiling = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.failures++);
    this.timer = setTimeout(() => this.connect(), Math.random() * ceiling);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    clearTimeout(this.steady);
    hangUp(this.socket);
  }
}

/** Close a socket; one that is still connecting closes once it is open, for browsers call it an error before. */
function hangUp(socket) {
  if (socket?.readyState === WebSocket.CONNECTING) socket.addEventListener("open", () => socket.close());
  else socket?.close();
}

function tell() {
  if ([...feeds.values()].every((feed) => feed.isOpen)) connection.up();
  else connection.down();
}

function reconcile() {
  for (const [element, feed] of feeds) {
    if (element.isConnected && element.dataset.live === feed.path) continue;
    feed.stop();
    feeds.delete(element);
  }
  if (gone) return;
  for (const element of document.querySelectorAll("[data-live]")) {
    if (element.dataset.live && !feeds.has(element)) feeds.set(element, new Feed(element));
  }
}

onChange(reconcile);
connection.onRetry(() => {
  if (!gone) return feeds.forEach((feed) => feed.reconnect());
  gone = false;
  feeds.clear();
  reconcile();
});
addEventListener("pagehide", () => {
  feeds.forEach((feed) => feed.stop());
  feeds.clear();
});
addEventListener("pageshow", (event) => event.persisted && reconcile());
