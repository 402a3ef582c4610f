/* Detects that the end of a text was on screen. Buttons that approve the text stay locked until then. */

const MARGIN = 60;

/** Return whether an element is on screen now, by the same measure as the watcher's. */
export function isInView(end) {
  if (!end.checkVisibility()) return false;
  const { top, bottom } = end.getBoundingClientRect();
  const pane = end.closest(".detail");
  const limit =
    pane && getComputedStyle(pane).overflowY === "auto"
      ? pane.getBoundingClientRect()
      : { top: 0, bottom: innerHeight };
  return bottom >= Math.max(0, limit.top) && top <= Math.min(innerHeight - MARGIN, limit.bottom);
}

/** Return a watcher that calls `onRead` with each watched element once the element was on screen. */
export function endWatcher(onRead) {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        onRead(target);
      }
    },
    { rootMargin: `0px 0px -${MARGIN}px` },
  );
  return {
    watch: (end) => observer.observe(end),
    /** Stop watching; entries that are queued already are dropped too. */
    clear() {
      observer.disconnect();
      observer.takeRecords();
    },
  };
}
