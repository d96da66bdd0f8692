"""The metadata service of machines at AWS that have a role, as IMDSv2: who asks without a word for
the conversation is refused, and a word is given to who puts, never to who was sent here by others.

    metadata.py FOLDER ADDRESS PORT

The keys of the role are in `keys.json` of FOLDER, where `cloud.py` writes them. Every request is a
line of standard output: its method, its path, what became of it.
"""

import http.server, json, pathlib, secrets, sys

FOLDER, ADDRESS, PORT = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
ROLES = "/latest/meta-data/iam/security-credentials/"
words = set()


class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status, text=""):
        print(self.command, self.path, status, flush=True)
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        is_asked = self.path == "/latest/api/token" and seconds.isdigit() and 1 <= int(seconds) <= 21600
        if not is_asked or "X-Forwarded-For" in self.headers:
            return self.say(400)
        word = secrets.token_urlsafe()
        words.add(word)
        self.say(200, word)

    def do_GET(self):
        if self.headers.get("X-aws-ec2-metadata-token") not in words:
            return self.say(401)
        role = json.loads((FOLDER / "keys.json").read_text()).get("gateway")
        answers = {ROLES: "gateways", ROLES + "gateways": json.dumps(role)} if role else {}
        self.say(200, answers[self.path]) if self.path in answers else self.say(404)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer((ADDRESS, PORT), Door)
print("metadata is told", flush=True)
server.serve_forever()
