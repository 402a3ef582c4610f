/* [data-copy] puts its text, and [data-copy-from] the text of the element it names, on the clipboard. */

import { answer } from "../core/announce.js";
import { toast } from "./toasts.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copyFrom ?? "");
  const text = source ? source.textContent : (button.dataset.copy ?? "");
  try {
    await navigator.clipboard.writeText(text);
    toast(source ? "Copied" : `Copied ${text.slice(0, 48)}`);
    answer("Copied");
  } catch {
    toast("The browser did not allow copying. Select the text and copy it yourself.");
  }
});
