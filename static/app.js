/* Enhancements of pages that work without scripts. Modules listen on the document, so replaced parts need no setup. */

import "./js/components/copy_button.js";
import "./js/components/default_marks.js";
import "./js/components/disclosure.js";
import "./js/components/list_navigation.js";
import "./js/components/menu.js";
import "./js/components/relative_time.js";
import "./js/components/send_once.js";
import "./js/components/tabs.js";
import "./js/components/title_badge.js";
import "./js/components/toasts.js";
import "./js/core/connection.js";
import "./js/core/live_updates.js";
import "./js/core/session.js";
import "./js/core/shortcuts.js";
import "./js/pages/decision_bar.js";
import "./js/pages/plan.js";
import "./js/pages/plan_draft.js";
import "./js/pages/plan_editor.js";
import "./js/pages/plan_slice.js";
import "./js/pages/plan_timeline.js";
import "./js/pages/queue_position.js";
import "./js/pages/queue_selection.js";
import "./js/pages/reading_time.js";
import "./js/pages/stale_notice.js";
import "./js/pages/unsent_notes.js";
