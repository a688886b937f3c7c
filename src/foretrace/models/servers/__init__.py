"""The model servers, one file each; what they share lies one folder up."""
