"""Tests of the package `toolgate_client`."""
