/* form[data-send-once] is sent once: a double click must not replace the answer, which shows a secret only once. */

const SENT = "sent";

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-send-once]");
  if (!form || event.defaultPrevented) return;
  if (form.dataset[SENT]) event.preventDefault();
  form.dataset[SENT] = "yes";
});

// A page that comes back from the browser's cache may be sent again.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-send-once]")) delete form.dataset[SENT];
});
