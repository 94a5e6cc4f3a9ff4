"""Alerts: each problem is sent once, to a webhook, Slack or e-mail, and recorded as sent."""
