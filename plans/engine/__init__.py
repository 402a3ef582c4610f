"""One step from ready to done: claimed, judged, held, started, finished, and recovered when its worker is lost.

Never imports actions, agents, the planner, the API or pages: what these add to a step, they register.
"""
