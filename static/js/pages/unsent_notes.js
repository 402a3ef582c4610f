/* Keeps notes and questions that were typed but not sent when the request is drawn again, for example after a claim. */

import { shownRequest } from "./pane_requests.js";

let unsent = {};

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target?.id !== "pane") return;
  const sent = event.detail.requestConfig?.path ?? "";
  const fields = sent.endsWith("/comment/") ? ["note"] : ["note", "ask"];
  const values = fields.map((id) => [id, document.getElementById(id)?.value ?? ""]);
  unsent = { request: shownRequest(), values: values.filter(([, value]) => value) };
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id !== "pane" || !shownRequest() || shownRequest() !== unsent.request) return;
  for (const [id, value] of unsent.values) {
    const field = document.getElementById(id);
    if (field && !field.value) field.value = value;
  }
});
