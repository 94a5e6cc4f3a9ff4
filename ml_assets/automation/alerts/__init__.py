"""Alerts: what is wrong is told once, to a webhook, Slack or e-mail, and written down as told."""
