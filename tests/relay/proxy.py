"""A reverse proxy as a cloud's is: HTTPS on both sides, and of upgrades `websocket` alone, or none.

python3 proxy.py CERTIFICATE KEY LISTEN_PORT SERVER_PORT websocket|nothing
"""

import select
import socket
import ssl
import sys
import threading

CERTIFICATE, KEY, LISTEN, SERVER, PASSES = sys.argv[1:]
FRONT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
FRONT.load_cert_chain(CERTIFICATE, KEY)
BACK = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
BACK.check_hostname, BACK.verify_mode = False, ssl.CERT_NONE


def rewritten(head):
    """Fields between two hops stop here (RFC 9110, section 7.6.1), except of what is passed."""
    first, *fields = head.split("\r\n")
    said = {field.split(":", 1)[0].lower(): field.split(":", 1)[1].strip() for field in fields}
    kept = [f for f in fields if f.split(":", 1)[0].lower() not in ("connection", "upgrade")]
    if said.get("upgrade", "").lower() == "websocket" == PASSES:
        kept += ["Connection: Upgrade", "Upgrade: websocket"]
        print("passed a WebSocket", flush=True)
    else:
        kept.append("Connection: close")
    return "\r\n".join([first, *kept]) + "\r\n\r\n"


def pump(one, two):
    while True:
        ready = [end for end in (one, two) if end.pending()]
        for end in ready or select.select([one, two], [], [])[0]:
            data = end.recv(65536)
            if not data:
                return
            (two if end is one else one).sendall(data)


def serve(plain):
    try:
        with FRONT.wrap_socket(plain, server_side=True) as client:
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            head, rest = head.split(b"\r\n\r\n", 1)
            raw = socket.create_connection(("127.0.0.1", int(SERVER)))
            with BACK.wrap_socket(raw) as server:
                server.sendall(rewritten(head.decode("latin-1")).encode("latin-1") + rest)
                pump(client, server)
    except (OSError, ssl.SSLError):
        pass


def main():
    listener = socket.create_server(("0.0.0.0", int(LISTEN)), backlog=64)
    print("proxy listens", flush=True)
    while True:
        plain, _ = listener.accept()
        threading.Thread(target=serve, args=(plain,), daemon=True).start()


main()
