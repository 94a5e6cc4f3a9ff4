"""What all stages share: one pipeline's graph as plain values, publishing, inputs, metadata."""
