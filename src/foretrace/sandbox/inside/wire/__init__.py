"""What goes between the processes of a sandbox: messages, frames, and values as tagged JSON. No pickle anywhere."""
