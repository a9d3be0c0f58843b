"""Long work over files: apply, audit and construct in batches, skip rows, resume.

`applying` and `auditing` are imported one by one: a repair is applied without scikit-learn,
which an audit needs.
"""
