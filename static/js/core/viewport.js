/* The widths at which pages change their layout, as in the media queries of the stylesheets. */

/** Return whether the window is as narrow as a phone's: lists and details are pages of their own. */
export function isPhone() {
  return matchMedia("(max-width: 720px)").matches;
}

/** Return whether the open step of a plan is shown beside the list of steps. */
export function isStepBesideList() {
  return matchMedia("(min-width: 1181px)").matches;
}
