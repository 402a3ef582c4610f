"""What operators read of a process: health, metrics, log lines. Changes nothing."""
