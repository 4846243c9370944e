"""The gateway's side of servers' questions: to which client each goes, in the way of the client's era."""
