"""The bundled demonstration servers and the verb that runs them."""
