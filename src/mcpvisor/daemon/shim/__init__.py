"""The door for clients that only speak stdio: their lines to the gateway, and its answers back."""
