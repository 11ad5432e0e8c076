"""The history of what ran, in files of this user: `.history` in the state folder, a name that no cluster can have.

index.jsonl         a row for each entry; the last row of an entry holds
NAME/NUMBER/        an entry: its facts and, in its own files, all that is bulk

The files are written as things happen, by the supervisor and by commands. A write that fails never fails a command.
"""
