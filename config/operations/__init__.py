"""Monitoring of a process: health checks, metrics, logs. Changes nothing."""
