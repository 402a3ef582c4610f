/* The page's title and icon say that people are waited for. The number is read where the page shows it. */

import { onChange } from "../core/page_changes.js";

onChange(() => {
  const waiting = Number(document.querySelector("[data-waiting]:not(link)")?.dataset.waiting ?? 0);
  const plain = document.title.replace(/^\(\d+\) /, "");
  document.title = waiting ? `(${waiting}) ${plain}` : plain;
  const icon = document.getElementById("favicon");
  if (icon) icon.href = waiting ? icon.dataset.waiting : icon.dataset.quiet;
});
