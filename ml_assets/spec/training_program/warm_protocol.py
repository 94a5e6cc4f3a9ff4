"""The protocol between a server and its warm model: frames on a pipe, one question at a time.

A question is a number of rows, then their numeric columns [rows, n] float32 and their categorical
ones [rows, c] int32, as the model's preprocessing encodes them. An answer is whether it failed and
how many bytes follow: predictions [rows, outputs] float64, or a sentence. The first answer comes
unasked, when the model is loaded.
"""

import struct

QUESTION = struct.Struct("<I")
ANSWER = struct.Struct("<?I")
"""Failed or not; bytes that follow."""
MODULE = "ml_assets.training.warm_model"
