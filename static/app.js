/* Small improvements to pages that work without them. Each module listens on the document, so swaps change nothing. */

import "./js/pages/decision_bar.js";
import "./js/components/title_badge.js";
import "./js/components/relative_time.js";
import "./js/core/connection.js";
import "./js/components/copy_button.js";
import "./js/components/disclosure.js";
import "./js/core/shortcuts.js";
import "./js/components/list_navigation.js";
import "./js/core/live_updates.js";
import "./js/pages/stale_notice.js";
import "./js/pages/queue_selection.js";
import "./js/pages/plan.js";
import "./js/core/session.js";
import "./js/pages/plan_slice.js";
import "./js/components/tabs.js";
import "./js/pages/plan_timeline.js";
import "./js/components/toasts.js";
