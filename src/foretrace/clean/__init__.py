"""Make traces safe to share: take out secrets and personal data before anything is written."""
