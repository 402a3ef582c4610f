"""The life of a step from ready to done: claim, gate, hold, start, finish, and recovery when its worker is lost.

Never imports actions, agents, the planner, the API or pages; they register their hooks in `plans.engine.extensions`.
"""
