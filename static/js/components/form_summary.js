/* The summary beside a form: each [data-shows=NAME] in [data-summary-of=FORM] shows the field of that name, as typed or
   by the names of the chosen options; a list shows one option on each line. Without a value, [data-empty] is shown. */

function shown(field) {
  if (field.matches("select")) return [...field.selectedOptions].map((option) => option.text);
  if (!field.matches("[type=radio], [type=checkbox]")) return [field.value.trim()];
  return field.checked ? [field.labels[0]?.querySelector("b")?.textContent ?? field.value] : [];
}

function refresh(form) {
  for (const part of document.querySelectorAll(`[data-summary-of="${form.id}"] [data-shows]`)) {
    const fields = [...form.elements].filter((field) => field.name === part.dataset.shows);
    const texts = fields.flatMap(shown).filter(Boolean);
    if (!texts.length) texts.push(part.dataset.empty ?? "");
    const items = texts.map((text) => Object.assign(document.createElement("li"), { textContent: text }));
    if (part.matches("ul")) part.replaceChildren(...items);
    else part.textContent = texts.join(", ");
  }
}

document.addEventListener("input", (event) => {
  if (event.target.form?.id) refresh(event.target.form);
});
