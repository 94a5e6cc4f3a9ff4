"""The ledger: hash-chained lines, certificates and queries; the source of truth about stages."""
