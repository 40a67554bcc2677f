"""Methods of local learning: each says how a signal goes through a block, and what the block's loss is."""
