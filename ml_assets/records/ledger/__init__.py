"""The ledger: hash-chained lines, their certificates, and queries. It is the source of truth about
stages."""
