"""The truth about stages: hash-chained lines, their certificates, and questions to them."""
