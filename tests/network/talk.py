"""A connection that must live: one end answers every line, the other tells of the longest wait.

talk.py answer ADDRESS PORT
talk.py ask ADDRESS PORT FILE      until FILE is there
"""
import os
import socket
import sys
import time

role, address, port = sys.argv[1:4]
if role == "answer":
    listening = socket.create_server((address, int(port)))
    print("ready", flush=True)
    connection, _ = listening.accept()
    while data := connection.recv(4096):
        connection.sendall(data)
else:
    connection = socket.create_connection((address, int(port)), timeout=60)
    print("ready", flush=True)
    answers = connection.makefile("rb")
    longest, lines = 0.0, 0
    while not os.path.exists(sys.argv[4]):
        begin, line = time.monotonic(), b"%d\n" % lines
        connection.sendall(line)
        assert answers.readline() == line
        longest, lines = max(longest, time.monotonic() - begin), lines + 1
        time.sleep(0.02)
    print(f"lines={lines} longest_ms={longest * 1000:.0f} end", flush=True)
