"""The screens of the app, and the dialogs over them."""
