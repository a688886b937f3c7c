"""The model servers, one file each; what they share is one folder up."""
