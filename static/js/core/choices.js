/* Choices that a person makes beside a form, such as the theme, saved for all their browsers. */

let last = Promise.resolve();

/** Save a choice, one request after the other, so that the last one is kept. Return whether the server has stored it. */
export function choose(name, value) {
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  const body = new URLSearchParams({ [name]: value });
  last = last
    .then(() => fetch(document.body.dataset.choose, { method: "POST", headers, body }))
    .then(
      (response) => response.ok,
      () => false,
    );
  return last;
}
