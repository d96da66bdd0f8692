"""What a test asks of the real cloud, beside what it has `warren sites` do there.

    asked.py census                what the project has, by kind: numbers of the cloud's own
    asked.py seen                  all of it, by kind
    asked.py changes               how often each thing of neutron's was changed
    asked.py foreign               what is the operator's own, made when it is not there
    asked.py boots FOLDER          `boot-ID` for each machine that was started: its user data
    asked.py ports ID              a machine's ports
    asked.py start NETWORK         a machine of the operator's own; prints its number
    asked.py end ID                ends a machine
    asked.py check                 has the gateway's inner port let nobody else's addresses pass
    asked.py trust                 has the gateway's outer port send as whoever it likes
    asked.py open PORT             lets a port of TCP into the gateway's group
    asked.py silence               takes away the rule of the default group
    asked.py astray                takes away the routes of the site's subnet
    asked.py unfloat               takes the floating address off the gateway
    asked.py unplug ROLE           deletes a port that a gateway's machine has
"""

import base64
import json
import pathlib
import sys
import time

from api import Project, Refused

KINDS = ["networks", "subnets", "routers", "ports", "floatingips", "security-groups",
         "security-group-rules"]
# What the operator's own things say, and how another network of Warren's in the project is marked.
OWN, OTHER = "the operator's own", "warren acmes vienna inside 0"
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
    found = {kind: sorted(one["id"] for one in of(project, kind)) for kind in KINDS}
    return {**found, "servers": sorted(one["id"] for one in servers(project))}


def seen(project):
    return {**{kind: of(project, kind) for kind in KINDS}, "servers": servers(project)}


def changes(project):
    return {one["id"]: one["revision_number"] for kind in KINDS for one in of(project, kind)}


def foreign(project):
    """The names and addresses of a site's own, without its mark; and what bears another's."""
    if not any(one["description"] == OWN for one in of(project, "networks")):
        make_foreign(project)
    # Its agents say by themselves how it goes.
    told = lambda one: {key: value for key, value in one.items() if key != "status"}
    found = {kind: [told(one) for one in of(project, kind) if one["description"] in (OWN, OTHER)]
             for kind in KINDS}
    [machine] = [one for one in servers(project) if one["metadata"].get("warren", "") == OTHER]
    keys = ["id", "name", "status", "metadata", "addresses", "security_groups"]
    return {**found, "machine": {key: machine[key] for key in keys}}


def make_foreign(project):
    def made(kind, **one):
        key = kind.replace("-", "_").removesuffix("s")
        body = {key: {"description": OWN, **one}}
        return project.network("POST", kind, body)[key]["id"]

    network = made("networks", name="acme vienna inside")
    subnet = made("subnets", name="acme vienna inside", network_id=network, ip_version=4,
                  cidr="10.3.0.0/24", gateway_ip=None,
                  host_routes=[{"destination": "10.0.0.0/8", "nexthop": "10.3.0.9"}])
    group = made("security-groups", name="gateway")
    made("security-group-rules", security_group_id=group, direction="ingress", protocol="tcp",
         port_range_min=22, port_range_max=22)
    [default] = [one["id"] for one in of(project, "security-groups") if one["name"] == "default"]
    made("security-group-rules", security_group_id=default, direction="ingress", protocol="tcp",
         port_range_min=22, port_range_max=22)
    port = made("ports", name="acme vienna acme-vienna-gw1", network_id=network,
                security_groups=[group],
                fixed_ips=[{"subnet_id": subnet, "ip_address": "10.3.0.254"}])
    [out] = [one["id"] for one in project.all("networks") if one["router:external"]]
    made("routers", name="acme vienna router", external_gateway_info={"network_id": out})
    made("floatingips", floating_network_id=out)
    made("networks", name="acmes vienna inside", description=OTHER)
    start(project, {"port": port}, name="acme-vienna-gw1", metadata={"warren": OTHER})
    # Neutron gives it a port for DHCP, which is there before anybody counts.
    until(lambda: any(one["device_owner"] == "network:dhcp"
                      for one in project.all("ports", f"network_id={network}")))


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


def start(project, where, **more):
    [image] = project.call("image", "GET", "v2/images")["images"]
    flavors = project.call("compute", "GET", "flavors")["flavors"]
    [flavor] = [one["id"] for one in flavors if one["name"] == "small"]
    body = {"name": "app", "imageRef": image["id"], "flavorRef": flavor, "networks": [where], **more}
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


def trust(project):
    port = one(project, "ports", "acme-vienna-gw1-outside")["id"]
    body = {"port": {"port_security_enabled": False, "security_groups": []}}
    project.network("PUT", f"ports/{port}", body)


def silence(project):
    for rule in project.all("security-group-rules"):
        if rule["description"] == "warren acme":
            project.network("DELETE", f"security-group-rules/{rule['id']}")


def astray(project):
    subnet = one(project, "subnets", "inside")["id"]
    project.network("PUT", f"subnets/{subnet}", {"subnet": {"host_routes": []}})


def unfloat(project):
    floating = one(project, "floatingips", "acme-vienna-gw1")["id"]
    project.network("PUT", f"floatingips/{floating}", {"floatingip": {"port_id": None}})


def unplug(project, role):
    project.network("DELETE", f"ports/{one(project, 'ports', role)['id']}")


member = Project("member", "demo")
answer = {
    "census": lambda: census(member),
    "seen": lambda: seen(member),
    "changes": lambda: changes(member),
    "foreign": lambda: foreign(member),
    "boots": lambda: boots(Project("admin", "admin"), *rest),
    "ports": lambda: member.all("ports", f"device_id={rest[0]}"),
    "start": lambda: start(member, {"uuid": rest[0]}),
    "end": lambda: end(member, *rest),
    "check": lambda: check(member),
    "open": lambda: open_port(member, int(rest[0])),
    "trust": lambda: trust(member),
    "silence": lambda: silence(member),
    "astray": lambda: astray(member),
    "unfloat": lambda: unfloat(member),
    "unplug": lambda: unplug(member, *rest),
}[word]()
print(json.dumps(answer, sort_keys=True))
