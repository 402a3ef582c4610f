/* Detects that the end of a text was on screen. Buttons that approve the text stay locked until then. */

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
    { rootMargin: "0px 0px -60px" },
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
