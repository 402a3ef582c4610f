"""Tests of the installation: its folders, its command and its wheel."""
