"""One module for each format whose files hold whole conversations.

To add one, write a module here whose `PLUGIN` has the members of `foretrace.sources.base.FileSource`, and name it in
`BUILT_IN` of `core/plugins.py`. What several formats share is in the parent package.
"""
