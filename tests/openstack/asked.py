"""What a test asks of the real cloud, beside what it has `warren sites` do there.

    asked.py census                how many of each kind the project has
    asked.py seen                  all of it, by kind
    asked.py foreign               an operator's own network, made when it is not there
    asked.py boots FOLDER          `boot-ID` for each machine that was started: its user data
    asked.py ports ID              a machine's ports
    asked.py start NETWORK         a machine of the operator's own; prints its number
    asked.py end ID                ends a machine
    asked.py check                 has the gateway's inner port let nobody else's addresses pass
    asked.py open PORT             lets a port of TCP into the gateway's group
    asked.py spoil                 takes away the rule of the default group and the subnet's routes
"""

import base64
import json
import pathlib
import sys
import time

from api import Project, Refused

KINDS = ["networks", "subnets", "routers", "ports", "floatingips", "security-groups",
         "security-group-rules"]
# So long a machine takes to be there or to be gone.
WITHIN = 120

word, *rest = sys.argv[1:]


def of(project, kind):
    """What a project has of a kind; the way out is the provider's."""
    found = project.all(kind)
    return [one for one in found if not one.get("router:external")]


def servers(project):
    return project.call("compute", "GET", "servers/detail")["servers"]


def census(project):
    counts = {kind: len(of(project, kind)) for kind in KINDS}
    return {**counts, "servers": len(servers(project))}


def seen(project):
    return {**{kind: of(project, kind) for kind in KINDS}, "servers": servers(project)}


def foreign(project):
    """The same names and addresses as a site's own, without its mark."""
    named = [one for one in of(project, "networks") if one["description"] == "the operator's own"]
    if not named:
        body = {"name": "acme vienna inside", "description": "the operator's own"}
        network = project.network("POST", "networks", {"network": body})["network"]["id"]
        subnet = {"network_id": network, "ip_version": 4, "cidr": "10.3.0.0/24",
                  "host_routes": [{"destination": "10.0.0.0/8", "nexthop": "10.3.0.9"}]}
        project.network("POST", "subnets", {"subnet": subnet})
        group = {"name": "gateway", "description": "the operator's own"}
        group = project.network("POST", "security-groups", {"security_group": group})
        port = {"network_id": network, "security_groups": [group["security_group"]["id"]]}
        port = project.network("POST", "ports", {"port": port})["port"]
        router = project.network("POST", "routers", {"router": {"name": "acme vienna router"}})
        return [network, group["security_group"]["id"], port["id"], router["router"]["id"]]
    network = named[0]["id"]
    ports = [one for one in project.all("ports", f"network_id={network}")
             if not one["device_owner"]]
    subnets = project.all("subnets", f"network_id={network}")
    groups = [one for one in of(project, "security-groups") if one["name"] == "gateway"]
    routers = [one for one in of(project, "routers") if one["description"] == ""]
    return [named, subnets, groups, ports, routers]


def boots(admin, folder):
    folder = pathlib.Path(folder)
    found = admin.call("compute", "GET", "servers/detail?all_tenants=1",
                       X_OpenStack_Nova_API_Version="2.3")["servers"]
    for server in found:
        path = folder / f"boot-{server['id']}"
        data = server["OS-EXT-SRV-ATTR:user_data"]
        if server["status"] != "ACTIVE" or not data:
            continue
        if path.exists() or path.with_name(f"done-{path.name}").exists():
            continue
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(base64.b64decode(data))
        new.rename(path)


def start(project, network):
    [image] = project.call("image", "GET", "v2/images")["images"]
    flavors = project.call("compute", "GET", "flavors")["flavors"]
    [flavor] = [one["id"] for one in flavors if one["name"] == "small"]
    body = {"name": "app", "imageRef": image["id"], "flavorRef": flavor,
            "networks": [{"uuid": network}]}
    id = project.call("compute", "POST", "servers", {"server": body})["server"]["id"]
    until(lambda: project.call("compute", "GET", f"servers/{id}")["server"]["status"] == "ACTIVE")
    return id


def end(project, id):
    project.call("compute", "DELETE", f"servers/{id}")

    def is_gone():
        try:
            project.call("compute", "GET", f"servers/{id}")
            return False
        except Refused as refused:
            return refused.status == 404

    until(is_gone)


def until(holds):
    limit = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.5)


def one(project, kind, role):
    """What `warren sites` made for a role in a site."""
    [found] = [one for one in of(project, kind)
               if one["description"].startswith("warren acme vienna ")
               and one["description"].split(" ")[3] == role]
    return found


def check(project):
    port = one(project, "ports", "acme-vienna-gw1")["id"]
    project.network("PUT", f"ports/{port}", {"port": {"allowed_address_pairs": []}})


def open_port(project, port):
    rule = {"security_group_id": one(project, "security-groups", "gateway")["id"],
            "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
            "port_range_min": port, "port_range_max": port}
    project.network("POST", "security-group-rules", {"security_group_rule": rule})


def spoil(project):
    for rule in project.all("security-group-rules"):
        if rule["description"] == "warren acme":
            project.network("DELETE", f"security-group-rules/{rule['id']}")
    subnet = one(project, "subnets", "inside")["id"]
    project.network("PUT", f"subnets/{subnet}", {"subnet": {"host_routes": []}})


member = Project("member", "demo")
answer = {
    "census": lambda: census(member),
    "seen": lambda: seen(member),
    "foreign": lambda: foreign(member),
    "boots": lambda: boots(Project("admin", "admin"), *rest),
    "ports": lambda: member.all("ports", f"device_id={rest[0]}"),
    "start": lambda: start(member, *rest),
    "end": lambda: end(member, *rest),
    "check": lambda: check(member),
    "open": lambda: open_port(member, int(rest[0])),
    "spoil": lambda: spoil(member),
}[word]()
print(json.dumps(answer, sort_keys=True))
