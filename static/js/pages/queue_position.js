/* The open request and its queue: shows "3 of 12" in the request; opens the first that arrives beside an empty pane; on
   phones, opens each on a page of its own. */

import { onChange } from "../core/page_changes.js";
import { isPhone } from "../core/viewport.js";
import { isOpening, isSending, shownRequest } from "./pane_requests.js";

function showPosition() {
  const place = document.getElementById("place");
  const total = document.querySelector("#views [aria-current] b")?.textContent;
  const rows = [...document.querySelectorAll("#queue [data-item][id^=q-]:not([data-over])")];
  const at = rows.findIndex((row) => row.id === shownRequest());
  if (!place || !total || at < 0 || isOpening()) return;
  const before = Number(document.querySelector("#queue [data-page]").dataset.page);
  place.textContent = `${before + at + 1} of ${total}`;
}

let asked;

/** Open the first request of the list if the pane has none, so that one that arrives is answered as on a new page. */
function openFirst() {
  const pane = document.getElementById("pane");
  if (!pane || pane.querySelector("[data-shown], #several, [role=alert]")) {
    asked = undefined;
    return;
  }
  const link = document.querySelector("#queue [data-item] a[hx-get]");
  const path = link?.getAttribute("hx-get");
  if (!path || path === asked || isPhone() || isOpening() || isSending()) return;
  asked = path; // one that could not be opened waits for a person to open it
  window.htmx.ajax("GET", path, { source: link, target: "#pane" }).catch(() => {});
}

// On phones htmx must not see these events: links and forms load pages, so that Back leads to the list.
document.addEventListener(
  "click",
  (event) => {
    if (event.target.closest("#queue a[hx-get]") && isPhone()) event.stopPropagation();
  },
  true,
);
document.addEventListener(
  "submit",
  (event) => {
    if (event.target.id === "bulk" && isPhone()) event.stopPropagation();
  },
  true,
);

onChange(showPosition);
onChange(openFirst);
