"""What the processes of a sandbox exchange: messages, frames, and values as tagged JSON, never pickles."""
