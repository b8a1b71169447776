"""The other endpoints: embeddings, images, audio, files, batches and more, whose bytes are relayed and not translated.

`table` says what there is. `form` reads and rewrites the model in a form, `body` watches a response. Plans are made in
`proxying.relayed_plan`, and `http.relayed` serves the paths.
"""
