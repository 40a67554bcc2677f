"""What comes in: sources that verify, images on the device, texts as vectors, batched augmentation."""
