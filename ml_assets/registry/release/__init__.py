"""What may be used: loading, promotion, override, rollback, recall, export."""
