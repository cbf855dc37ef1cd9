"""The server: HTTP over an open batch, with the requests and replies of the APIs in use."""
