"""What all stages share: code versions, inputs, publishing, data cards."""
