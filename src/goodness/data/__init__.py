"""What comes in: sources that verify, images on the device, batched augmentation."""
