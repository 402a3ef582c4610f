/* Keeps notes and questions that were typed but not sent, and the parts that were unfolded, when the request is drawn
   again, for example after a claim. */

import { shownRequest } from "./pane_requests.js";

let unsent = {};

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target?.id !== "pane") return;
  const sent = event.detail.requestConfig?.path ?? "";
  const fields = sent.endsWith("/comment/") ? ["note"] : ["note", "ask"];
  const values = fields.map((id) => [id, document.getElementById(id)?.value ?? ""]);
  const unfolded = [...document.querySelectorAll("#detail details.flat[open]")].map((part) => part.id);
  unsent = { request: shownRequest(), values: values.filter(([, value]) => value), unfolded };
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id !== "pane" || !shownRequest() || shownRequest() !== unsent.request) return;
  for (const id of unsent.unfolded) document.getElementById(id)?.setAttribute("open", "");
  for (const [id, value] of unsent.values) {
    const field = document.getElementById(id);
    if (field && !field.value) field.value = value;
  }
});
