"""The fault matrix: real commands under random faults, and a history checker that shares no code
with the product. ``make faults`` runs it and writes docs/faults.md."""
