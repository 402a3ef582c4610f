/* Small improvements to pages that work without them. Each module listens on the document, so swaps change nothing. */

import "./js/approvals.js";
import "./js/attention.js";
import "./js/clock.js";
import "./js/connection.js";
import "./js/copying.js";
import "./js/disclosure.js";
import "./js/keys.js";
import "./js/lists.js";
import "./js/live.js";
import "./js/looks.js";
import "./js/picking.js";
import "./js/plans.js";
import "./js/session.js";
import "./js/slices.js";
import "./js/tabs.js";
import "./js/timeline.js";
import "./js/toasts.js";
