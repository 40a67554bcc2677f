"""What is trained: stem, blocks, heads. Nothing here knows of losses, optimisers or data sets."""
