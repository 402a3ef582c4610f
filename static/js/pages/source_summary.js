/* The summary beside the preview of a new source follows the levels and switches of its tools. */

document.addEventListener("input", (event) => {
  const list = event.target.closest(".offered");
  if (!list) return;
  const rows = [...list.children].filter((row) => row.querySelector("[type=checkbox]").checked);
  document.querySelector("[data-enabled]").textContent = rows.length;
  for (const part of document.querySelectorAll(".form-summary [data-level]")) {
    const ofLevel = rows.filter((row) => row.querySelector("select").value === part.dataset.level);
    part.querySelector("[data-count]").textContent = ofLevel.length;
    const names = ofLevel.map((row) => row.querySelector("code").textContent);
    const items = names.map((name) => Object.assign(document.createElement("li"), { textContent: name }));
    part.querySelector("[data-names]")?.replaceChildren(...items);
  }
});
