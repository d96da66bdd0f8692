"""Azure as far as a site needs it: its directory and its Resource Manager with a memory, with
operations that go on after their answer, and with the refusals that Azure documents. It is ours;
what it is asked and answers is held against Microsoft's own specifications afterwards.

    arm.py serve FOLDER ADDRESS PORT ROLE
    arm.py ask FOLDER census | spoil | terminate | release | forbid RIGHT | allow | lock SECONDS | foreign
    arm.py ask FOLDER role [RIGHT]        machines have their role, or all of it but one right
    arm.py ask FOLDER fabric PUBLIC...    what Azure believes, as a script of sh and nft

ROLE is a custom role, or two: of the operator, and of machines, which get their tokens from the metadata service at
the next port. What a role does not name is refused. FOLDER gets `arm-ca.pem`, `boot-ID` for each machine that was run
(its custom data), and `exchanges.jsonl`. `moved` there says in words of `ip` where routes lead that were written.
`faults.json` says how to fail, as `faults.py` has it: a call is `PUT virtualmachines`; `expire` ends tokens so soon.
"""

import base64, http.server, ipaddress, json, pathlib, re, socketserver, ssl, subprocess, sys, threading
import time, urllib.parse, urllib.request

# Tests run it where its source is.
sys.dont_write_bytecode = True
from faults import Faults

word, folder, *rest = sys.argv[1:]
FOLDER = pathlib.Path(folder)
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
VERSIONS = {"microsoft.network": "2021-05-01", "microsoft.compute": "2021-07-01", "": "2021-04-01"}
LOCATIONS = ["westeurope", "francecentral", "germanywestcentral"]
NET, VM = "microsoft.network/", "microsoft.compute/virtualmachines"

state, lock, operations = {}, threading.RLock(), {}
faults, tokens, count = Faults(FOLDER), {}, [0]
allowed, gateways = [], []
ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"


class Refused(Exception):
    def __init__(self, status, code, message):
        self.status, self.code, self.message = status, code, message


def kind_of(path):
    """The type of what a path names, and whether it names one or all."""
    parts = path.split("/")
    if len(parts) <= 5:
        return "microsoft.resources/subscriptions/resourcegroups", len(parts) == 5
    if parts[5] != "providers":
        return f"microsoft.resources/subscriptions/resourcegroups/{parts[5]}", False
    names = parts[7:]
    return "/".join([parts[6]] + names[::2]), len(names) % 2 == 0


def all_of(kind, group=None):
    return [one for one in state.values() if one["_kind"] == kind and (group is None or one["_group"] == group)]


def known(reference, what):
    """What a reference names; it has to be there, and done."""
    one = state.get(reference["id"].lower()) if reference else None
    if one is None:
        raise Refused(400, "InvalidResourceReference", f"{what} {reference} is not there")
    if one["properties"].get("provisioningState") != "Succeeded":
        raise Refused(409, "ReferencedResourceNotProvisioned", f"{what} is not done")
    return one


def first(interface):
    return interface["properties"]["ipConfigurations"][0]["properties"]


def users(key, id):
    """Interfaces and subnets that name something."""
    found = [nic for nic in all_of(NET + "networkinterfaces")
             if (nic["properties"].get(key) or first(nic).get(key) or {}).get("id", "").lower() == id]
    return found + [net for net in all_of(NET + "virtualnetworks/subnets")
                    if (net["properties"].get(key) or {}).get("id", "").lower() == id]


def check_rules(rules):
    seen = {}
    for rule in rules:
        at = (rule["properties"]["direction"], rule["properties"]["priority"])
        if not 100 <= at[1] <= 4096:
            raise Refused(400, "SecurityRuleInvalidPriority", "priority is 100 to 4096")
        if seen.setdefault(at, rule["name"]) != rule["name"]:
            raise Refused(400, "SecurityRuleConflict", f"Security rule {rule['name']} conflicts with rule "
                          f"{seen[at]}. Rules cannot have the same Priority and Direction.")


def check(kind, id, one):
    """What Azure refuses."""
    properties = one["properties"]
    if kind == NET + "virtualnetworks/subnets":
        parent = state.get(id.rsplit("/", 2)[0])
        if parent is None:
            raise Refused(404, "ResourceNotFound", "there is no such network")
        net = ipaddress.ip_network(properties["addressPrefix"])
        if not any(net.subnet_of(ipaddress.ip_network(space))
                   for space in parent["properties"]["addressSpace"]["addressPrefixes"]):
            raise Refused(400, "NetcfgInvalidSubnet", "it is outside of the network")
        for other in all_of(kind):
            if other["_id"] != id and other["_id"].startswith(parent["_id"]) and \
                    net.overlaps(ipaddress.ip_network(other["properties"]["addressPrefix"])):
                raise Refused(400, "NetcfgSubnetRangesOverlap", f"{net} overlaps")
        for key in ("routeTable", "networkSecurityGroup"):
            if properties.get(key):
                known(properties[key], key)
    if kind == NET + "networksecuritygroups":
        check_rules(properties.get("securityRules", []))
    if kind == NET + "networkinterfaces":
        inner = first(one)
        subnet = known(inner["subnet"], "subnet")
        net = ipaddress.ip_network(subnet["properties"]["addressPrefix"])
        address = ipaddress.ip_address(inner["privateIPAddress"])
        if address not in net:
            raise Refused(400, "PrivateIPAddressNotInSubnet", f"{address} is not in {net}")
        if int(address) - int(net.network_address) < 4:
            raise Refused(400, "PrivateIPAddressInReservedRange", f"{address} is Azure's own")
        known(properties["networkSecurityGroup"], "group")
        for other in all_of(kind):
            if other["_id"] != id and first(other)["privateIPAddress"] == str(address) and \
                    first(other)["subnet"]["id"].lower() == subnet["_id"]:
                raise Refused(400, "PrivateIPAddressInUse", f"{address} is in use")
            public = inner.get("publicIPAddress")
            if public and other["_id"] != id and first(other).get("publicIPAddress") == public:
                raise Refused(400, "PublicIPAddressInUse", "it is at another interface")
        if inner.get("publicIPAddress"):
            known(inner["publicIPAddress"], "public address")
    if kind == VM:
        if one.get("identity") and ASSIGN not in allowed:
            raise Refused(403, "LinkedAuthorizationFailed", f"The client has no permission to perform action '{ASSIGN}'")
        for reference in properties["networkProfile"]["networkInterfaces"]:
            nic = known(reference, "interface")
            holder = nic["properties"].get("virtualMachine")
            if holder and holder["id"].lower() != id:
                raise Refused(409, "NicInUse", "another machine has the interface")
        data = base64.b64decode(properties["osProfile"]["customData"])
        if len(data) > 65535 or not properties["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"]:
            raise Refused(400, "InvalidParameter", "customData or keys")


def held(kind, id):
    """Why something cannot be removed now."""
    subnets = [net for net in all_of(NET + "virtualnetworks/subnets") if net["_id"].startswith(id)]
    if kind in (NET + "virtualnetworks", NET + "virtualnetworks/subnets") and \
            any(first(nic)["subnet"]["id"].lower() in [net["_id"] for net in subnets]
                for nic in all_of(NET + "networkinterfaces")):
        return "InUseSubnetCannotBeDeleted"
    if kind == NET + "networksecuritygroups" and users("networkSecurityGroup", id):
        return "InUseNetworkSecurityGroupCannotBeDeleted"
    if kind == NET + "routetables" and users("routeTable", id):
        return "InUseRouteTableCannotBeDeleted"
    if kind == NET + "publicipaddresses" and users("publicIPAddress", id):
        return "PublicIPAddressCannotBeDeleted"
    if kind == NET + "networkinterfaces" and state[id]["properties"].get("virtualMachine"):
        return "NicInUse"
    return None


def begin(what, host, answer, done):
    """An operation that goes on: it is done when it was asked after twice."""
    count[0] += 1
    operations[str(count[0])] = {"left": 1, "done": done}
    base = f"https://{host}/subscriptions/{SUBSCRIPTION}"
    at = f"{base}/providers/{what}/locations/here/operations/{count[0]}?api-version=2021-05-01"
    if what == "Microsoft.Resources":
        at = f"{base}/operationresults/{count[0]}?api-version=2021-04-01"
        return answer[0], {"Location": at, "Retry-After": "0"}, answer[1]
    return answer[0], {"Azure-AsyncOperation": at, "Retry-After": "0"}, answer[1]


def shown(one):
    """As answers have it: with what hangs on it."""
    value = {key: item for key, item in one.items() if not key.startswith("_")}
    value["properties"] = properties = dict(one["properties"])
    inner = lambda kind: [shown(part) for part in all_of(kind) if part["_id"].startswith(one["_id"] + "/")]
    named = lambda nic: {"id": nic["id"] + "/ipConfigurations/inside"}
    kind = one["_kind"]
    if kind == NET + "virtualnetworks":
        properties["subnets"] = inner(kind + "/subnets")
    if kind == NET + "networksecuritygroups":
        properties["securityRules"] = inner(kind + "/securityrules")
    if kind == NET + "routetables":
        properties["routes"] = inner(kind + "/routes")
        properties["subnets"] = [{"id": net["id"]} for net in users("routeTable", one["_id"])]
    if kind == NET + "publicipaddresses":
        for nic in users("publicIPAddress", one["_id"]):
            properties["ipConfiguration"] = named(nic)
    return value


def side(address):
    """What a fabric calls the side of a gateway: 254 is the first one."""
    return f"gw{254 - int(address.rsplit('.', 1)[1])}"


def follow():
    """Tells a fabric where routes lead now."""
    with open(FOLDER / "moved", "a") as file:
        for route in all_of(NET + "routetables/routes"):
            to, hop = route["properties"]["addressPrefix"], route["properties"]["nextHopIpAddress"]
            file.write(f"ip route replace {to} via {hop} dev {side(hop)} onlink proto 200\n")


def put(kind, path, body, host):
    id = path.lower()
    parts = path.split("/")
    old = state.get(id)
    if kind == "microsoft.resources/subscriptions/resourcegroups":
        if body["location"] not in LOCATIONS:
            raise Refused(400, "LocationNotAvailableForResourceGroup", f"The provided location '{body['location']}' is "
                          f"not available for resource group. List of available regions is '{','.join(LOCATIONS)}'.")
        state[id] = {"_id": id, "_kind": kind, "_group": parts[4].lower(), "id": path, "name": parts[4],
                     "type": "Microsoft.Resources/resourceGroups", "location": body["location"],
                     "tags": body.get("tags", {}), "properties": {"provisioningState": "Succeeded"}}
        return (200 if old else 201), {}, shown(state[id])
    group = "/".join(parts[:5]).lower()
    if group not in state:
        raise Refused(404, "ResourceGroupNotFound", f"Resource group '{parts[4]}' could not be found.")
    one = dict(body, _id=id, _kind=kind, _group=parts[4].lower(), id=path, name=parts[-1])
    one["properties"] = dict(body.get("properties", {}))
    if len(parts) == 9:
        one["type"] = f"{parts[6]}/{parts[7]}"
        if "location" not in body:
            raise Refused(400, "LocationRequired", "The location property is required for this definition.")
    elif id.rsplit("/", 2)[0] not in state:
        raise Refused(404, "ParentResourceNotFound", "what it is a part of is not there")
    check(kind, id, one)
    inner = {NET + "networksecuritygroups": ("securityRules", "securityrules"),
             NET + "routetables": ("routes", "routes"), NET + "virtualnetworks": ("subnets", "subnets")}
    if kind in inner:
        name, last = inner[kind]
        for part in [part for part in all_of(f"{kind}/{last}") if part["_id"].startswith(id + "/")]:
            del state[part["_id"]]
        for part in one["properties"].pop(name, []):
            at = f"{path}/{name}/{part['name']}"
            state[at.lower()] = {"_id": at.lower(), "_kind": f"{kind}/{last}", "_group": one["_group"], "id": at,
                                 "name": part["name"], "properties": dict(part["properties"], provisioningState="Succeeded")}
    if kind == NET + "networksecuritygroups/securityrules":
        parent = path.rsplit("/", 2)[0]
        check_rules([one] + [rule for rule in all_of(kind)
                             if rule["_id"].startswith(parent.lower() + "/") and rule["_id"] != id])
    if kind == NET + "networkinterfaces" and old:
        one["properties"]["virtualMachine"] = old["properties"].get("virtualMachine")
        one["properties"] = {key: item for key, item in one["properties"].items() if item is not None}
    if kind == NET + "publicipaddresses":
        one["properties"]["ipAddress"] = f"203.0.113.{count[0] % 250}"
    if kind == VM:
        one["properties"] |= {"vmId": str(count[0])}
        for reference in one["properties"]["networkProfile"]["networkInterfaces"]:
            state[reference["id"].lower()]["properties"]["virtualMachine"] = {"id": path}
        data = base64.b64decode(one["properties"]["osProfile"].pop("customData"))
        if old is None:
            (FOLDER / f"boot-{parts[-1]}.new").write_bytes(data)
            (FOLDER / f"boot-{parts[-1]}.new").rename(FOLDER / f"boot-{parts[-1]}")
        one["_power"] = "running"
    one["properties"]["provisioningState"] = "Creating" if kind == VM else "Updating"
    state[id] = one

    def done():
        if id in state:
            state[id]["properties"]["provisioningState"] = "Succeeded"
        if kind == NET + "routetables/routes" and old:
            follow()
    return begin(parts[6], host, ((200 if old else 201), shown(one)), done)


def delete(kind, path, host):
    id = path.lower()
    if id not in state:
        if path.count("/") == 4:
            raise Refused(404, "ResourceGroupNotFound", "there is no such group")
        return 204, {}, None
    why = held(kind, id)
    if why:
        raise Refused(409 if why == "NicInUse" else 400, why, f"{path} is in use")
    parts = path.split("/")

    def done():
        for nic in all_of(NET + "networkinterfaces"):
            if (nic["properties"].get("virtualMachine") or {}).get("id", "").lower() == id:
                del nic["properties"]["virtualMachine"]
        for other in [other for other in state if other == id or other.startswith(id + "/")]:
            del state[other]
    provider = parts[6] if len(parts) > 6 else "Microsoft.Resources"
    return begin(provider, host, (202, None), done)


def expanded(one):
    value = shown(one)
    power = one["_power"]
    value["properties"]["instanceView"] = {"statuses": [
        {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"},
        {"code": f"PowerState/{power}", "level": "Info", "displayStatus": f"VM {power}"}]}
    return value


def operation(number, location):
    one = operations.get(number)
    if one is None:
        raise Refused(404, "OperationNotFound", "there is no such operation")
    if one["left"] > 0:
        one["left"] -= 1
        return (202, {"Location": location, "Retry-After": "0"}, None) if "operationresults" in location \
            else (200, {"Retry-After": "0"}, {"status": "InProgress"})
    if one["done"]:
        one["done"]()
        one["done"] = None
    return (200, {}, None) if "operationresults" in location else (200, {}, {"status": "Succeeded"})


def get(kind, is_one, path, query):
    parts = path.split("/")
    if is_one:
        if path.lower() not in state:
            is_group = "/".join(parts[:5]).lower() in state
            code = "ResourceNotFound" if is_group and len(parts) > 5 else "ResourceGroupNotFound"
            raise Refused(404, code, f"{path} was not found.")
        one = state[path.lower()]
        return expanded(one) if query.get("$expand") == ["instanceView"] else shown(one)
    if kind == "microsoft.resources/subscriptions/resourcegroups/resources":
        found = [one for one in state.values() if one["_group"] == parts[4].lower() and one["_id"].count("/") == 8]
        return {"value": [{key: one.get(key) for key in ("id", "name", "type", "location", "tags")} for one in found]}
    if len(parts) <= 5:
        found = all_of("microsoft.resources/subscriptions/resourcegroups")
        wanted = re.fullmatch(r"tagName eq '(.*)' and tagValue eq '(.*)'", query.get("$filter", [""])[0])
        return {"value": [shown(one) for one in found if wanted and one["tags"].get(wanted[1]) == wanted[2]]}
    if "/".join(parts[:5]).lower() not in state:
        raise Refused(404, "ResourceGroupNotFound", f"Resource group '{parts[4]}' could not be found.")
    return {"value": [shown(one) for one in all_of(kind, parts[4].lower())]}


def roles(text):
    """What the operator may do, and what machines may."""
    role = json.loads(text)
    return role.get("operator", role)["Actions"], role.get("gateway", {"Actions": []})["Actions"]


def check_right(method, path, kind, who):
    """A role names what may be done; what it does not name is refused by its name."""
    verb = {"GET": "read", "PUT": "write", "DELETE": "delete", "POST": "action"}[method]
    if method == "POST":
        kind = kind.rsplit("/", 1)[0] + "/" + path.split("/")[-1]
    right = f"{kind}/{verb}"
    if right.lower() not in [known.lower() for known in (gateways if who == "machine" else allowed)]:
        raise Refused(403, "AuthorizationFailed", f"The client 'c' does not have authorization to perform "
                      f"action '{right}' over scope '{path}' or the scope is invalid.")


def arm(method, url, body, host, who):
    path, query = url.path.rstrip("/"), urllib.parse.parse_qs(url.query)
    parts = path.split("/")
    if parts[1:3] != ["subscriptions", SUBSCRIPTION]:
        raise Refused(404, "SubscriptionNotFound", "The subscription could not be found.")
    if "operations" in parts or "operationresults" in parts:
        return operation(parts[-1], f"https://{host}{url.path}?{url.query}")
    kind, is_one = kind_of(path.lower())
    version = query.get("api-version", [""])[0]
    if version != VERSIONS.get(kind.split("/")[0], VERSIONS[""]):
        raise Refused(400, "InvalidApiVersionParameter", f"The api-version '{version}' is invalid.")
    check_right(method, path, kind, who)
    if method == "GET":
        return 200, {}, get(kind, is_one, path, query)
    if method == "PUT":
        return put(kind, path, body, host)
    if method == "DELETE":
        return delete(kind, path, host)
    machine = state.get(path.rsplit("/", 1)[0].lower())
    if machine is None or parts[-1] != "start":
        raise Refused(404, "ResourceNotFound", "there is no such machine")
    return begin(parts[6], host, (202, None), lambda: machine.update(_power="running"))


def fresh(who):
    token = f"token-{len(tokens)}"
    tokens[token] = [who, 0]
    return token


class Metadata(http.server.BaseHTTPRequestHandler):
    """What every machine is told of itself, if it asks with the field that no page of others can send."""

    def do_GET(self):
        is_asked = self.headers.get("Metadata") == "true"
        value = {"subscriptionId": SUBSCRIPTION}
        if self.path.startswith("/metadata/identity/oauth2/token?"):
            value = {"access_token": fresh("machine"), "expires_in": "86399", "token_type": "Bearer"}
        body = json.dumps(value).encode()
        self.send_response_only(200 if is_asked else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Azure(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def one(self, raw):
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith("/test/"):
            return 200, {}, asked(url.path[6:], urllib.parse.unquote(url.query))
        if url.path == "/a-tenant/oauth2/v2.0/token":
            form = {key: value[0] for key, value in urllib.parse.parse_qs(raw.decode()).items()}
            if (form["client_id"], form.get("client_secret")) != ("a-client", "a&secret") or \
                    not form["scope"].endswith("/.default"):
                return 401, {}, {"error": "invalid_client", "error_description": "AADSTS7000215"}
            return 200, {}, {"token_type": "Bearer", "expires_in": 3599, "access_token": fresh("operator")}
        faults.look()
        called = f"{self.command} {kind_of(url.path.rstrip('/').lower())[0].split('/')[-1]}"
        if faults.is_down(called):
            return None
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in tokens or tokens[token][1] > faults.get("expire", 1 << 30):
            raise Refused(401, "ExpiredAuthenticationToken", "The access token has expired.")
        tokens[token][1] += 1
        if faults.is_throttled():
            raise Refused(429, "TooManyRequests", "slow down")
        if faults.once("broken", called):
            raise Refused(500, "InternalServerError", "An error occurred.")
        answer = arm(self.command, url, json.loads(raw or b"null"), self.headers["Host"], tokens[token][0])
        return None if faults.once("lost", called) else answer

    def answer(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with lock:
            try:
                answer = self.one(raw)
            except Refused as refused:
                fields = {"Retry-After": "1"} if refused.status == 429 else {}
                error = {"code": refused.code, "message": refused.message}
                answer = refused.status, fields, {"error": error}
            print(self.command, self.path, answer and answer[0], flush=True)
            if answer and self.path.startswith("/subscriptions"):
                pair = {"liveRequest": {"method": self.command, "url": self.path,
                                        "headers": {"Content-Type": "application/json"},
                                        "body": json.loads(raw or b"null")},
                        "liveResponse": {"statusCode": str(answer[0]), "body": answer[2],
                                         "headers": dict(answer[1], **{"Content-Type": "application/json"})}}
                with open(FOLDER / "exchanges.jsonl", "a") as file:
                    file.write(json.dumps(pair) + "\n")
        if answer is None:
            self.close_connection = True
            return
        body = b"" if answer[2] is None else json.dumps(answer[2]).encode()
        self.send_response_only(answer[0])
        for name, value in answer[1].items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


def asked(what, word):
    """What a test asks of Azure's own side."""
    if what == "census":
        kinds = [one["_kind"] for one in state.values()]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    # One site is played, in a group of its own: `warren-NETWORK-SITE`.
    groups = all_of("microsoft.resources/subscriptions/resourcegroups")
    group = groups[0]["id"] if groups else ""
    holder = group.rsplit("/", 1)[-1].lower()
    gateway = holder.removeprefix("warren-") + "-gw"
    one = lambda path: state.get(f"{group}/providers/Microsoft.Network/{path}".lower())
    if what == "spoil":
        one(f"networkInterfaces/{gateway}1")["properties"]["enableIPForwarding"] = False
        rule = {"priority": 200, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
                "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*",
                "destinationPortRange": "22", "provisioningState": "Succeeded"}
        path = f"{group}/providers/Microsoft.Network/networkSecurityGroups/gateway/securityRules/mine"
        state[path.lower()] = {"_id": path.lower(), "_kind": NET + "networksecuritygroups/securityrules",
                               "_group": holder, "id": path, "name": "mine", "properties": rule}
        del one("virtualNetworks/network/subnets/subnet")["properties"]["routeTable"]
        one("routeTables/routes/routes/warren-10.0.0.0-8")["properties"]["nextHopIpAddress"] = "10.2.0.99"
    if what == "stop":
        for machine in all_of(VM):
            machine["_power"] = "deallocated"
    if what == "release":
        for address in all_of(NET + "publicipaddresses"):
            for nic in users("publicIPAddress", address["_id"]):
                del first(nic)["publicIPAddress"]
            del state[address["_id"]]
    if what == "terminate":
        for machine in all_of(VM):
            for nic in all_of(NET + "networkinterfaces"):
                nic["properties"].pop("virtualMachine", None)
            del state[machine["_id"]]
    if what == "forbid":
        allowed.remove(word)
    if what == "allow":
        allowed[:] = roles((FOLDER / "role.json").read_text())[0]
    if what == "role":
        gateways[:] = [one for one in roles((FOLDER / "role.json").read_text())[1] if one.lower() != word]
    if what == "lock":
        for rule in all_of(NET + "networksecuritygroups/securityrules"):
            if rule["properties"].get("description"):
                del state[rule["_id"]]
        if word != "0":
            path = f"{group}/providers/Microsoft.Network/networkSecurityGroups/warren-lock/securityRules/held-other"
            rule = {"priority": 4000, "direction": "Inbound", "access": "Deny", "protocol": "*",
                    "sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*",
                    "destinationPortRange": "*", "provisioningState": "Succeeded",
                    "description": f"{int(time.time()) + int(word)} somebody@elsewhere other 1"}
            state[path.lower()] = {"_id": path.lower(), "_kind": NET + "networksecuritygroups/securityrules",
                                   "_group": holder, "id": path, "name": "held-other", "properties": rule}
    if what == "foreign":
        path = f"{group}/providers/Microsoft.Network/publicIPAddresses/mine"
        if word == "away":
            del state[path.lower()]
        else:
            state[path.lower()] = {"_id": path.lower(), "_kind": NET + "publicipaddresses", "_group": holder,
                                   "id": path, "name": "mine", "type": "Microsoft.Network/publicIPAddresses",
                                   "location": "westeurope", "properties": {"provisioningState": "Succeeded"}}
    if what == "believes":
        subnet = one("virtualNetworks/network/subnets/subnet")
        table = (subnet["properties"].get("routeTable") or {}).get("id", "-").lower()
        under = lambda id, kind: [part["properties"] for part in all_of(kind) if part["_id"].startswith(id + "/")]
        found = []
        for nic in filter(None, [one(f"networkInterfaces/{gateway}{at}") for at in (1, 2)]):
            group = nic["properties"]["networkSecurityGroup"]["id"].lower()
            found.append({"address": first(nic)["privateIPAddress"], "public": "publicIPAddress" in first(nic),
                          "forwarding": nic["properties"]["enableIPForwarding"],
                          "rules": under(group, NET + "networksecuritygroups/securityrules")})
        return {"gateways": found, "subnet": subnet["properties"]["addressPrefix"],
                "routes": under(table, NET + "routetables/routes")}
    return {}


def fabric(publics):
    seen = ask("believes")
    port = {gateway["address"]: f"gw{at}" for at, gateway in enumerate(seen["gateways"])}
    print("ip route flush proto 200 || true")
    for route in seen["routes"]:
        hop = route["nextHopIpAddress"]
        print(f"ip route replace {route['addressPrefix']} via {hop} dev {port.get(hop, 'gw0')} onlink proto 200")
    into, out, lines = [], [], []
    for gateway, public in zip(seen["gateways"], publics):
        at, address = port[gateway["address"]], gateway["address"]
        if gateway["public"]:
            into.append(f"iifname wan0 ip daddr {public} dnat to {address};")
            out.append(f"oifname wan0 ip saddr {address} snat to {public};")
        if not gateway["forwarding"]:
            lines += [f"iifname {at} ip saddr != {address} drop", f"oifname {at} ip daddr != {address} drop"]
    lines.append("ct state established,related accept")
    # Azure's own rules come last: the network and what tables of routes lead to, and nothing else.
    usual = [{"priority": 65000, "access": "Allow", "protocol": "*", "destinationPortRange": "*", "sourceAddressPrefix": net}
             for net in [seen["subnet"]] + [route["addressPrefix"] for route in seen["routes"]]]
    for gateway in seen["gateways"]:
        inward = [rule for rule in gateway["rules"] if rule["direction"] == "Inbound"]
        for rule in sorted(inward, key=lambda rule: rule["priority"]) + usual:
            source = "0.0.0.0/0" if rule["sourceAddressPrefix"] == "*" else rule["sourceAddressPrefix"]
            ports = "" if rule["destinationPortRange"] == "*" else \
                f"{rule['protocol'].lower()} dport {rule['destinationPortRange']} "
            verdict = "accept" if rule["access"] == "Allow" else "drop"
            lines.append(f"oifname {port[gateway['address']]} ip saddr {source} {ports}{verdict}")
    # The site's own machines have no group, and nobody is kept from sending.
    lines += ['oifname "app*" accept', "oifname wan0 accept"]
    print("nft -f - <<'RULES'\nflush ruleset\ntable ip cloud {\n"
          f"chain in {{ type nat hook prerouting priority dstnat; {' '.join(into)} }}\n"
          f"chain out {{ type nat hook postrouting priority srcnat; {' '.join(out)} }}\n"
          "chain pass { type filter hook forward priority 0; policy drop;\n" + "\n".join(lines) + "\n}\n}\nRULES")


def ask(what, word=""):
    place = json.loads((FOLDER / "arm.json").read_text())
    context = ssl.create_default_context(cafile=FOLDER / "arm-ca.pem")
    with urllib.request.urlopen(f"{place}/test/{what}?{urllib.parse.quote(word)}", context=context) as answer:
        return json.loads(answer.read())


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


if word == "serve":
    address, port, role = rest
    allowed[:], gateways[:] = roles(pathlib.Path(role).read_text())
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=arm", "-addext", f"subjectAltName=IP:{address}",
         "-addext", "basicConstraints=critical,CA:FALSE",
         "-keyout", FOLDER / "arm.key", "-out", FOLDER / "arm-ca.pem"], check=True, capture_output=True)
    server = Server((address, int(port)), Azure)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "arm-ca.pem", FOLDER / "arm.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (FOLDER / "arm.json").write_text(json.dumps(f"https://{address}:{port}"))
    metadata = http.server.ThreadingHTTPServer((address, int(port) + 1), Metadata)
    threading.Thread(target=metadata.serve_forever, daemon=True).start()
    print("azure is open", flush=True)
    server.serve_forever()
elif rest[0] == "fabric":
    fabric(rest[1:])
else:
    print(json.dumps(ask(*rest)))
