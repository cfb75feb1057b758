"""The studio: pages and an HTTP API over a folder of run directories (`headstart serve`). Nothing below imports it."""
