"""Calls of a cloud's services, with nothing but what Python has."""

import json
import urllib.error
import urllib.request

ADDRESS = "203.0.113.2"
REGION = "RegionOne"
PASSWORD = "secret"
URLS = {
    "identity": f"http://{ADDRESS}:5000/v3",
    "placement": f"http://{ADDRESS}:8778",
    "image": f"http://{ADDRESS}:9292",
    "compute": f"http://{ADDRESS}:8774/v2.1",
    "network": f"http://{ADDRESS}:9696",
}
WITHIN = 60
# Whoever runs this may have a proxy, which knows nothing of the address.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Refused(Exception):
    """What a service said, with its status."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


def send(method, url, body=None, **fields):
    """One call: the answer's fields and its JSON. Bytes are sent as they are."""
    fields = {name.replace("_", "-"): value for name, value in fields.items()}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields["Content-Type"] = "application/json"
    request = urllib.request.Request(url, body, fields, method=method)
    try:
        with DIRECT.open(request, timeout=WITHIN) as answer:
            return answer.headers, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise Refused(error.code, f"{method} {url}: {error.read().decode()}") from None


class Project:
    """A user in a project of a cloud."""

    def __init__(self, user, project):
        domain = {"id": "default"}
        who = {"name": user, "password": PASSWORD, "domain": domain}
        identity = {"methods": ["password"], "password": {"user": who}}
        scope = {"project": {"name": project, "domain": domain}}
        body = {"auth": {"identity": identity, "scope": scope}}
        fields, value = send("POST", URLS["identity"] + "/auth/tokens", body)
        self.token = fields["X-Subject-Token"]
        self.id = value["token"]["project"]["id"]

    def call(self, service, method, path, body=None, **fields):
        """The JSON that a service answers."""
        url = f"{URLS[service]}/{path}"
        return send(method, url, body, X_Auth_Token=self.token, **fields)[1]

    def network(self, method, path, body=None):
        """The same of neutron."""
        return self.call("network", method, f"v2.0/{path}", body)

    def all(self, kind, query=""):
        """Everything of a kind of neutron's, page after page."""
        found = []
        while True:
            marker = f"&marker={found[-1]['id']}" if found else ""
            page = self.network("GET", f"{kind}?{query}{marker}")[kind.replace("-", "_")]
            if not page:
                return found
            found += page
