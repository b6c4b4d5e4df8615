"""What runs in the processes of the contenders: how they enqueue, what they do, how they note it.

Most of it runs in the environment of the peers, which has their packages and the standard library.
"""
