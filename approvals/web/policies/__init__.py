"""Pages of policies: the list, the editor and its history, the simulator."""
