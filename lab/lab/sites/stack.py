"""An OpenStack cloud as far as a site needs it: keystone, neutron, nova and glance with a memory,
and with the refusals that the real ones were seen to make. It is ours, so it proves the client's
side alone; what it cannot know is told in docs/sites.md.

    stack.py serve FOLDER ADDRESS PORT
    stack.py ask FOLDER census | spoil | unplug | release | terminate | lock SECONDS | fabric PUBLIC
                                                                             (on the same machine)

FOLDER gets `boot-ID` for each machine that was run: its user data. `faults.json` there says how to
fail, as `faults.py` has it: a call is `POST servers`. `forbidden` are calls without the right to.
"""

import base64, hashlib, http.server, ipaddress, json, pathlib, socketserver, sys, threading, urllib.parse
import urllib.request, datetime, time

# Tests run it where its source is.
sys.dont_write_bytecode = True
from faults import Faults

word, folder, *rest = sys.argv[1:]
FOLDER = pathlib.Path(folder)
DEFAULT, OUT = "sg-default", "net-out"
# It answers no more than so many of a kind at once, as providers set it.
PAGE = 3


def fresh():
    rules = lambda group: [
        {"id": f"{group}-out", "security_group_id": group, "direction": "egress", "ethertype": "IPv4",
         "protocol": None, "port_range_min": None, "port_range_max": None,
         "remote_ip_prefix": None, "remote_group_id": None, "description": None}]
    return {"networks": {OUT: {"id": OUT, "router:external": True, "description": ""}},
            "subnets": {}, "routers": {}, "ports": {}, "floatingips": {}, "servers": {},
            "security-groups": {DEFAULT: {"id": DEFAULT, "name": "default", "description": "Default"}},
            "security-group-rules": {rule["id"]: rule for rule in rules(DEFAULT)}}


state, lock, count, faults = fresh(), threading.RLock(), [0], Faults(FOLDER)
ONE = {"networks": "network", "subnets": "subnet", "routers": "router", "ports": "port",
       "floatingips": "floatingip", "security-groups": "security_group",
       "security-group-rules": "security_group_rule"}


class Refused(Exception):
    def __init__(self, status, message):
        self.status, self.message = status, message


def shown(kind, one):
    one = dict(one)
    if kind == "security-groups":
        one["security_group_rules"] = [rule for rule in state["security-group-rules"].values()
                                       if rule["security_group_id"] == one["id"]]
    return one


def number(kind):
    count[0] += 1
    return f"{kind[:3]}-{count[0]}"


def create(kind, one):
    one = dict(one, id=number(kind))
    one.setdefault("description", "")
    if kind == "subnets":
        if one["network_id"] not in state["networks"]:
            raise Refused(404, "no such network")
        one.setdefault("host_routes", [])
        pools = one.get("allocation_pools") or []
        net = ipaddress.ip_network(one["cidr"])
        if any(ipaddress.ip_address(pool[key]) not in net for pool in pools for key in pool):
            raise Refused(400, "a pool is outside of the subnet")
    if kind == "ports":
        fixed = one["fixed_ips"][0]
        subnet = state["subnets"].get(fixed["subnet_id"])
        if subnet is None or subnet["network_id"] != one["network_id"]:
            raise Refused(400, "no such subnet in the network")
        used = [port["fixed_ips"][0]["ip_address"] for port in state["ports"].values()
                if port["fixed_ips"][0]["subnet_id"] == fixed["subnet_id"]]
        free = (str(a) for a in list(ipaddress.ip_network(subnet["cidr"]).hosts())[9:])
        fixed.setdefault("ip_address", next(a for a in free if a not in used))
        if fixed["ip_address"] in used:
            raise Refused(409, "IP address already allocated in subnet")
        one.setdefault("allowed_address_pairs", [])
        one |= {"port_security_enabled": True, "device_id": "", "device_owner": ""}
    if kind == "security-group-rules":
        for key in ["protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id"]:
            one.setdefault(key, None)
        same = lambda a: [a[k] for k in sorted(a) if k not in ("id", "description")]
        if any(same(other) == same(one) for other in state[kind].values()):
            raise Refused(409, "Security group rule already exists")
    if kind == "floatingips":
        one |= {"port_id": None, "floating_ip_address": f"203.0.113.{count[0]}"}
    state[kind][one["id"]] = one
    if kind == "security-groups":
        rule = dict(state["security-group-rules"][f"{DEFAULT}-out"], security_group_id=one["id"])
        create("security-group-rules", {k: v for k, v in rule.items() if k != "id"})
    return one


def delete(kind, id):
    if id not in state[kind]:
        raise Refused(404, "not found")
    ports = state["ports"].values()
    held = {"networks": [p for p in ports if p["network_id"] == id],
            "subnets": [p for p in ports if p["fixed_ips"][0]["subnet_id"] == id],
            "routers": [p for p in ports if p["device_id"] == id],
            "security-groups": [p for p in ports if id in p.get("security_groups", [])]}.get(kind)
    if held:
        raise Refused(409, f"{id} is in use")
    if kind == "security-groups":
        for rule in [r for r in state["security-group-rules"].values() if r["security_group_id"] == id]:
            del state["security-group-rules"][rule["id"]]
    if kind == "ports":
        for floating in [f for f in state["floatingips"].values() if f["port_id"] == id]:
            floating["port_id"] = None
    if kind == "networks":
        for subnet in [s for s in state["subnets"].values() if s["network_id"] == id]:
            del state["subnets"][subnet["id"]]
    del state[kind][id]


def update(kind, id, change):
    if id not in state[kind]:
        raise Refused(404, "not found")
    if kind == "floatingips" and change.get("port_id"):
        port = state["ports"][change["port_id"]]
        leads = [p for p in state["ports"].values() if p["device_owner"] == "network:router_interface"
                 and p["network_id"] == port["network_id"]]
        if not leads:
            raise Refused(404, "External network is not reachable from subnet")
    later = state[kind][id] | change
    if kind == "ports" and not later["port_security_enabled"]:
        if later["security_groups"]:
            raise Refused(400, "Port security must be enabled in order to use security groups.")
        if later["allowed_address_pairs"]:
            raise Refused(409, "Port Security must be enabled in order to have allowed address pairs.")
    state[kind][id] |= change
    return state[kind][id]


def router(id, verb, body):
    mine = [p for p in state["ports"].values()
            if p["device_id"] == id and p["fixed_ips"][0]["subnet_id"] == body["subnet_id"]]
    if verb == "add_router_interface":
        if mine:
            raise Refused(400, "Router already has a port on subnet")
        subnet = state["subnets"][body["subnet_id"]]
        first = str(next(ipaddress.ip_network(subnet["cidr"]).hosts()))
        port = create("ports", {"network_id": subnet["network_id"], "security_groups": [],
                                "fixed_ips": [{"subnet_id": subnet["id"], "ip_address": first}]})
        port |= {"device_id": id, "device_owner": "network:router_interface"}
    else:
        used = [f for f in state["floatingips"].values() if f["port_id"] and
                state["ports"][f["port_id"]]["network_id"] == mine[0]["network_id"]]
        if used:
            raise Refused(409, "the interface is required by a floating IP")
        del state["ports"][mine[0]["id"]]
    return {"id": id}


def server(one):
    ports = [state["ports"][net["port"]] for net in one["networks"]]
    if any(port["device_id"] for port in ports):
        raise Refused(409, "Port is still in use")
    id = number("servers")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for port in ports:
        port |= {"device_id": id, "device_owner": "compute:nova"}
    state["servers"][id] = {"id": id, "name": one["name"], "status": "ACTIVE", "created": now,
                            "metadata": one["metadata"]}
    (FOLDER / f"boot-{id}.new").write_bytes(base64.b64decode(one["user_data"]))
    (FOLDER / f"boot-{id}.new").rename(FOLDER / f"boot-{id}")
    return {"server": {"id": id}}


def attach(id, port):
    port = state["ports"].get(port)
    if port is None or id not in state["servers"]:
        raise Refused(404, "not found")
    if port["device_id"]:
        raise Refused(409, "Port is still in use")
    port |= {"device_id": id, "device_owner": "compute:nova"}
    return {"interfaceAttachment": {"port_id": port["id"], "port_state": "ACTIVE"}}


def end(id):
    if state["servers"].pop(id, None) is None:
        raise Refused(404, "Instance could not be found")
    for port in state["ports"].values():
        if port["device_id"] == id:
            port |= {"device_id": "", "device_owner": ""}


def compute(method, path, body):
    match method, path:
        case "GET", ["servers", "detail"]:
            return {"servers": list(state["servers"].values())}
        case "GET", ["flavors", "detail"]:
            return {"flavors": [{"id": "1", "name": "tiny", "ram": 256, "disk": 1},
                                {"id": "2", "name": "small", "ram": 1024, "disk": 5}]}
        case "GET", ["servers", id] if id in state["servers"]:
            return {"server": state["servers"][id]}
        case "POST", ["servers"]:
            return server(body["server"])
        case "POST", ["servers", id, "os-interface"]:
            return attach(id, body["interfaceAttachment"]["port_id"])
        case "DELETE", ["servers", id]:
            end(id)
            return None
    raise Refused(404, "not found")


def network(method, path, query, body):
    match method, path:
        case "GET", [kind]:
            [marker] = query.pop("marker", [""])
            all = sorted((shown(kind, one) for one in state[kind].values()), key=lambda one: one["id"])
            for key, value in query.items():
                all = [one for one in all if str(one.get(key, "")).lower() == value[0].lower()]
            page = [one for one in all if one["id"] > marker][:PAGE]
            key = kind.replace("-", "_")
            links = [{"rel": "next", "href": f"?marker={page[-1]['id']}"}] if len(page) == PAGE else []
            return {key: page, f"{key}_links": links}
        case "GET", [kind, id] if id in state[kind]:
            return {ONE[kind]: shown(kind, state[kind][id])}
        case "POST", [kind]:
            return {ONE[kind]: create(kind, body[ONE[kind]])}
        case "PUT", ["routers", id, verb]:
            return router(id, verb, body)
        case "PUT", [kind, id]:
            return {ONE[kind]: update(kind, id, body[ONE[kind]])}
        case "DELETE", [kind, id]:
            delete(kind, id)
            return None
    raise Refused(404, "not found")


class Cloud(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def one(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        place = urllib.parse.urlsplit(self.path)
        path, query = place.path.strip("/").split("/"), urllib.parse.parse_qs(place.query)
        if path[0] == "test":
            return 200, asked(*path[1:])
        faults.look()
        called = f"{self.command} {path[-1]}"
        if faults.is_down(called):
            return None
        if faults.is_throttled():
            raise Refused(429, "slow down")
        if faults.once("broken", called):
            raise Refused(500, "The server has either erred or is incapable of performing the operation.")
        here = "http://{}:{}".format(*self.server.server_address)
        if path == ["v3", "auth", "tokens"]:
            user = body["auth"]["identity"]["password"]["user"]
            if (user["name"], user["password"]) != ("member", "secret"):
                raise Refused(401, "The request you have made requires authentication.")
            entry = lambda kind, at: {"type": kind, "endpoints": [
                {"interface": "public", "region": "RegionOne", "url": here + at}]}
            catalog = [entry("network", "/net"), entry("compute", "/compute/v2.1"), entry("image", "/image")]
            return 201, {"token": {"catalog": catalog}}
        if self.headers.get("X-Auth-Token") != "a-token":
            raise Refused(401, "no token")
        if called in faults.get("forbidden", []):
            raise Refused(403, f"(rule:create_{path[-1].rstrip('s')}) is disallowed by policy")
        if path[0] == "net":
            value = network(self.command, path[2:], query, body)
        elif path[0] == "compute":
            value = compute(self.command, path[2:], body)
        else:
            value = {"images": [{"id": "im-1", "name": "Debian 12 genericcloud"}]}
        if faults.once("lost", called):
            return None
        return (204 if value is None else 200), value

    def answer(self):
        with lock:
            try:
                answer = self.one()
            except Refused as refused:
                answer = refused.status, {"error": {"message": refused.message}}
            print(self.command, self.path, answer and answer[0], flush=True)
        if answer is None:
            self.close_connection = True
            return
        body = b"" if answer[1] is None else json.dumps(answer[1]).encode()
        self.send_response_only(answer[0])
        self.send_header("X-Subject-Token", "a-token")
        # All but neutron stand behind uwsgi, which closes without a word; as Debian has it, what it
        # sends has no length either. With nova it has one.
        is_kept, is_long = self.path.startswith("/net/"), self.path.startswith("/compute/")
        if is_kept or is_long:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = not is_kept

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


def asked(what, word=""):
    """What a test asks of the cloud's own side."""
    if what == "census":
        return {kind: len(all) for kind, all in state.items()}
    if what == "lock":
        name = "warren-lock acme stack"
        rules = state["security-group-rules"]
        for rule in [rule for rule in rules.values() if (rule["description"] or "").startswith(name)]:
            del rules[rule["id"]]
        at = hashlib.sha256(name.encode()).digest()
        create("security-group-rules", {
            "security_group_id": DEFAULT, "direction": "egress", "ethertype": "IPv4", "protocol": "udp",
            "port_range_min": at[1] << 8 | at[2], "port_range_max": at[1] << 8 | at[2],
            "remote_ip_prefix": f"192.0.2.{at[0]}/32",
            "description": f"{name} {int(time.time()) + int(word)} somebody@elsewhere other 1"})
        return {}
    ports = {port["description"].split(" ")[-1]: port for port in state["ports"].values() if port["description"]}
    inner, outer = ports.get("acme-stack-gw1"), ports.get("acme-stack-gw1-outside")
    if what == "spoil":
        inner["allowed_address_pairs"] = []
        outer |= {"port_security_enabled": False, "security_groups": []}
        create("security-group-rules", {"security_group_id": inner["security_groups"][0], "protocol": "tcp",
               "direction": "ingress", "ethertype": "IPv4", "port_range_min": 22, "port_range_max": 22})
        for rule in [r for r in state["security-group-rules"].values() if r["description"] == "warren acme"]:
            del state["security-group-rules"][rule["id"]]
        [subnet] = [s for s in state["subnets"].values() if s["host_routes"]]
        subnet["host_routes"] = []
    if what == "unplug":
        for port in [inner, outer]:
            delete("ports", port["id"])
    if what == "release":
        state["floatingips"].clear()
    if what == "terminate":
        for id in list(state["servers"]):
            end(id)
    if what == "fabric":
        [subnet] = [s for s in state["subnets"].values() if s["gateway_ip" if "gateway_ip" in s else "id"] is None]
        rules = lambda group: [r for r in state["security-group-rules"].values()
                               if r["security_group_id"] == group and r["direction"] == "ingress"]
        floating = [f for f in state["floatingips"].values() if f["port_id"] == outer["id"]]
        return {"inner": inner["fixed_ips"][0]["ip_address"], "outer": outer["fixed_ips"][0]["ip_address"],
                "passes": [pair["ip_address"] for pair in inner["allowed_address_pairs"]],
                "routes": subnet["host_routes"], "floating": bool(floating),
                "plugged": [name for name, port in [("gw0", outer), ("gw1", inner)] if port["device_id"]],
                "gateway": rules(inner["security_groups"][0]), "default": rules(DEFAULT)}
    return {}


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def fabric(public):
    """What the cloud believes, as a script for its fabric; then one for the site's own machine."""
    seen = ask("fabric")
    lines = ["flush ruleset", "table ip cloud {"]
    if seen["floating"]:
        lines += [f"chain in {{ type nat hook prerouting priority dstnat; iifname wan0 ip daddr {public} dnat to {seen['outer']}; }}",
                  f"chain out {{ type nat hook postrouting priority srcnat; oifname wan0 ip saddr {seen['outer']} snat to {public}; }}"]
    foreign = " ".join(f"ip saddr != {own}" for own in [seen["inner"]] + seen["passes"])
    lines += ["chain pass { type filter hook forward priority 0; policy drop;",
              *(f"iifname {port} drop; oifname {port} drop" for port in ["gw0", "gw1"]
                if port not in seen["plugged"]),
              f"iifname gw1 {foreign} drop", "ct state established,related accept"]
    for ports, rules in [(["gw0", "gw1"], seen["gateway"]), (["app0"], seen["default"])]:
        for port in ports:
            for rule in rules:
                where = "" if not rule["protocol"] else \
                    f"{rule['protocol']} dport {rule['port_range_min']}-{rule['port_range_max']} "
                lines.append(f"oifname {port} ip saddr {rule['remote_ip_prefix'] or '0.0.0.0/0'} {where}accept")
    lines += ["iifname gw0 oifname wan0 accept", "}", "}"]
    print(f"ip route replace {seen['outer']}/32 dev gw0; ip addr replace 172.31.254.1/32 dev gw0")
    print("nft -f - <<'RULES'\n" + "\n".join(lines) + "\nRULES")
    # To the fabric a packet for another site goes where the machine sent it: to the gateway.
    print("ip route flush table 77 || true; ip rule del iif app0 table 77 2>/dev/null || true; "
          "ip rule add iif app0 table 77")
    print(f"ip route add {seen['inner']}/32 dev gw1 table 77")
    for route in seen["routes"]:
        print(f"ip route add {route['destination']} via {route['nexthop']} dev gw1 onlink table 77")
    print(f"ip rule del iif gw1 table 78 2>/dev/null || true; ip rule add iif gw1 table 78; "
          f"ip route replace 10.3.0.10/32 dev app0 table 78")


def ask(*words):
    place = json.loads((FOLDER / "stack.json").read_text())
    with urllib.request.urlopen("/".join([place, "test", *words])) as answer:
        return json.loads(answer.read())


if word == "serve":
    address, port = rest
    server_ = Server((address, int(port)), Cloud)
    (FOLDER / "stack.json").write_text(json.dumps(f"http://{address}:{port}"))
    print("the cloud is open", flush=True)
    server_.serve_forever()
elif rest[0] == "fabric":
    fabric(rest[1])
else:
    print(json.dumps(ask(*rest)))
