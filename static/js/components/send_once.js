/* A form that leads to another page is sent once: a second press would replace the answer to the first, which may show a
   secret only once. Forms that htmx sends and form[data-download], whose answer is a file, may be sent again. */

import { answer } from "../core/announce.js";
import { toast } from "./toasts.js";

let sent = new WeakSet();

// On the window, after all that may keep a form from being sent.
addEventListener("submit", (event) => {
  const { target: form } = event;
  if (event.defaultPrevented || !form.matches("[method=post]:not([data-download])")) return;
  if (sent.has(form)) {
    event.preventDefault();
    const text = "This was sent already. Wait for the next page, or reload this one to send it again.";
    toast(text);
    answer(text);
  }
  sent.add(form);
});

// A page that comes back from the browser's cache may be sent again.
addEventListener("pageshow", () => {
  sent = new WeakSet();
});
