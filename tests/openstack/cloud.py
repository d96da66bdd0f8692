"""A real OpenStack in one network namespace: keystone, placement, glance, nova with its fake driver,
and neutron with its agents. It runs below a root of its own, as that one's first process (root.sh).

    cloud.py prepare    writes settings and makes databases, once
    cloud.py serve      starts everything, says `the cloud is open`, and stays

Routers, addresses by DHCP, floating addresses, groups and the check of sources are what neutron's
agents make of this kernel. Machines are not: whoever has the other end of a port's interface
`tap…` is the machine. The interface `ext0` leads out, and `api0` has the address of the services.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from api import ADDRESS, PASSWORD, REGION, URLS, Project, Refused

LOGS = pathlib.Path("/var/log/cloud")
DATABASES = ["keystone", "placement", "glance", "nova_api", "nova", "nova_cell0", "neutron"]
# Neutron answers no more than so many of a kind at once, as providers set it.
PAGE = 5
# The network that leads out; floating addresses are of it.
OUT, OUT_GATEWAY, OUT_POOL = "198.51.100.0/24", "198.51.100.254", ("198.51.100.200", "198.51.100.219")
# Who is slower than this does not come any more, on a busy machine either.
WITHIN = 240

BROKER = {"transport_url": "rabbit://guest:guest@127.0.0.1:5672/", "use_stderr": "true"}


def database(name):
    return {"connection": f"mysql+pymysql://cloud:{PASSWORD}@127.0.0.1/{name}"}


# One user does all that services want of each other.
AS_ADMIN = {
    "auth_type": "password", "auth_url": URLS["identity"], "region_name": REGION,
    "username": "admin", "password": PASSWORD, "project_name": "admin",
    "user_domain_name": "Default", "project_domain_name": "Default",
}
TOKENS = {**AS_ADMIN, "www_authenticate_uri": URLS["identity"]}

SETTINGS = {
    "/etc/keystone/keystone.conf": {
        "DEFAULT": {"use_stderr": "true"},
        "database": database("keystone"),
        "token": {"provider": "fernet"},
    },
    "/etc/placement/placement.conf": {
        "DEFAULT": {"use_stderr": "true"},
        "placement_database": database("placement"),
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": TOKENS,
    },
    "/etc/glance/glance-api.conf": {
        "DEFAULT": {"use_stderr": "true", "enabled_backends": "files:file"},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": "/var/lib/glance/images"},
        "database": database("glance"),
        "paste_deploy": {"flavor": "keystone"},
        "keystone_authtoken": TOKENS,
    },
    "/etc/nova/nova.conf": {
        "DEFAULT": {**BROKER, "compute_driver": "fake.FakeDriver", "host": "cloud0",
                    "my_ip": "127.0.0.1", "state_path": "/var/lib/nova"},
        "api_database": database("nova_api"),
        "database": database("nova"),
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": TOKENS,
        "glance": {"region_name": REGION},
        "neutron": AS_ADMIN,
        "placement": AS_ADMIN,
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 2},
        "conductor": {"workers": 1},
        "vnc": {"enabled": "false"},
        "oslo_concurrency": {"lock_path": "/var/lib/nova/lock"},
    },
    # The server and each agent read it; the host has the same name as nova's.
    "/etc/neutron/neutron.conf": {
        "DEFAULT": {**BROKER, "core_plugin": "ml2", "service_plugins": "router", "host": "cloud0",
                    "bind_host": ADDRESS, "api_workers": 1, "rpc_workers": 1,
                    "rpc_state_report_workers": 0, "state_path": "/var/lib/neutron",
                    "pagination_max_limit": PAGE, "interface_driver": "linuxbridge",
                    "enable_metadata_proxy": "false"},
        "experimental": {"linuxbridge": "true"},
        "agent": {"root_helper": "env"},
        "database": database("neutron"),
        "keystone_authtoken": TOKENS,
        "nova": AS_ADMIN,
        "placement": AS_ADMIN,
        "ml2": {"type_drivers": "flat,local", "tenant_network_types": "local",
                "mechanism_drivers": "linuxbridge", "extension_drivers": "port_security"},
        "ml2_type_flat": {"flat_networks": "ext"},
        "linux_bridge": {"physical_interface_mappings": "ext:ext0"},
        "vxlan": {"enable_vxlan": "false"},
        "securitygroup": {"enable_security_group": "true", "firewall_driver": "iptables"},
        "oslo_concurrency": {"lock_path": "/var/lib/neutron/lock"},
        "oslo_messaging_notifications": {"driver": "noop"},
    },
}

# This ebtables cannot take away a rule with --among-src, and the agent would try for minutes. Such a
# rule lets a port's own hardware address pass, so it may stay.
EBTABLES = """#!/bin/sh
case " $* " in *" -D "*" --among-src "*) exit 0 ;; esac
exec /usr/sbin/ebtables "$@"
"""

running = {}


def give_up(why, name):
    """Ends with the last that a program said."""
    log = LOGS / f"{name}.log"
    last = log.read_text(errors="replace").splitlines()[-30:] if log.exists() else []
    print(f"{why}; the end of its log:", *last, sep="\n", flush=True)
    sys.exit(1)


def start(name, *command, **how):
    with open(LOGS / f"{name}.log", "ab") as log:
        running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=subprocess.STDOUT, **how)


def run(name, *command):
    """Runs a program to its end."""
    start(name, *command)
    try:
        status = running.pop(name).wait(WITHIN)
    except subprocess.TimeoutExpired:
        give_up(f"{command} does not end", name)
    if status:
        give_up(f"{command} ended with {status}", name)


def until(name, what, holds):
    """Waits until something holds of a program that runs."""
    end = time.monotonic() + WITHIN
    while not holds():
        if running[name].poll() is not None:
            give_up(f"{name} ended", name)
        if time.monotonic() > end:
            give_up(f"not within {WITHIN} s: {what}", name)
        time.sleep(0.2)


def answers(name, port, address="127.0.0.1"):
    def is_open():
        try:
            socket.create_connection((address, port), 1).close()
            return True
        except OSError:
            return False

    until(name, f"port {port} is open", is_open)


def start_database():
    pathlib.Path("/run/mysqld").mkdir(mode=0o777, exist_ok=True)
    os.chmod("/run/mysqld", 0o777)
    start("mariadb", "mariadbd", "--user=mysql", "--bind-address=127.0.0.1", "--skip-log-bin",
          "--skip-name-resolve", "--max-connections=500", "--innodb-buffer-pool-size=64M",
          "--innodb-flush-method=fsync", "--innodb-flush-log-at-trx-commit=0",
          "--innodb-use-native-aio=0")
    answers("mariadb", 3306)


def start_broker():
    named = {"RABBITMQ_NODENAME": "rabbit@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
             "ERL_EPMD_ADDRESS": "127.0.0.1", "HOME": "/var/lib/rabbitmq",
             "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1"}
    start("rabbit", "/usr/sbin/rabbitmq-server", user="rabbitmq", group="rabbitmq",
          extra_groups=[], env={**os.environ, **named})


def start_wsgi(name, program, port, count):
    # As Debian's own settings have it, an answer has no length and ends with its connection.
    start(name, "uwsgi_python311", "--http-socket", f"{ADDRESS}:{port}", "--wsgi-file",
          f"/usr/bin/{program}", "--master", "--processes", str(count), "--enable-threads",
          "--lazy-apps", "--need-app", "--die-on-term", "--buffer-size", "65535",
          "--post-buffering", "65536", "--rem-header", "Content-Length")


def prepare():
    for path, sections in SETTINGS.items():
        lines = []
        for section, pairs in sections.items():
            lines += [f"[{section}]", *(f"{key} = {value}" for key, value in pairs.items()), ""]
        pathlib.Path(path).write_text("\n".join(lines))
    run("ip", "ip", "link", "set", "lo", "up")
    run("ip", "ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo")
    start_database()
    # What a try that was stopped has left makes room.
    sql = [f"CREATE OR REPLACE DATABASE {name} CHARACTER SET utf8mb3" for name in DATABASES]
    sql += [f"CREATE OR REPLACE USER cloud@'%' IDENTIFIED BY '{PASSWORD}'",
            "GRANT ALL ON *.* TO cloud@'%'"]
    run("mariadb-client", "mariadb", "-e", "; ".join(sql))
    run("keystone-manage", "keystone-manage", "db_sync")
    for word in ["fernet_setup", "credential_setup"]:
        run("keystone-manage", "keystone-manage", word, "--keystone-user", "root",
            "--keystone-group", "root")
    address = URLS["identity"]
    run("keystone-manage", "keystone-manage", "bootstrap", "--bootstrap-password", PASSWORD,
        "--bootstrap-region-id", REGION, "--bootstrap-admin-url", address,
        "--bootstrap-internal-url", address, "--bootstrap-public-url", address)
    run("placement-manage", "placement-manage", "db", "sync")
    run("glance-manage", "glance-manage", "db_sync")
    for words in ["api_db sync", "cell_v2 map_cell0", "cell_v2 create_cell --name cell1", "db sync"]:
        run("nova-manage", "nova-manage", *words.split())
    run("neutron-db-manage", "neutron-db-manage", "--config-file", "/etc/neutron/neutron.conf",
        "upgrade", "heads")
    start_wsgi("keystone", "keystone-wsgi-public", 5000, 1)
    answers("keystone", 5000, ADDRESS)
    make_accounts(Project("admin", "admin"))
    for name in ["keystone", "mariadb"]:
        running[name].send_signal(signal.SIGTERM)
        running.pop(name).wait(WITHIN)


def make_accounts(admin):
    """The catalogue, and a user of the role member in a project `demo`."""
    for kind in ["placement", "image", "compute", "network"]:
        service = admin.call("identity", "POST", "services", {"service": {"type": kind, "name": kind}})
        endpoint = {"service_id": service["service"]["id"], "interface": "public",
                    "region_id": REGION, "url": URLS[kind]}
        admin.call("identity", "POST", "endpoints", {"endpoint": endpoint})
    demo = {"name": "demo", "domain_id": "default"}
    project = admin.call("identity", "POST", "projects", {"project": demo})["project"]["id"]
    member = {"name": "member", "password": PASSWORD, "domain_id": "default"}
    user = admin.call("identity", "POST", "users", {"user": member})["user"]["id"]
    [role] = admin.call("identity", "GET", "roles?name=member")["roles"]
    admin.call("identity", "PUT", f"projects/{project}/users/{user}/roles/{role['id']}")


def serve():
    begin = time.monotonic()
    for log in LOGS.glob("*.log"):
        log.unlink()
    for path in ["/run/neutron", "/run/nova", "/var/lib/neutron/lock", "/var/lib/nova/lock"]:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    first = pathlib.Path("/usr/local/sbin/ebtables")
    first.write_text(EBTABLES)
    first.chmod(0o755)
    start_database()
    start_broker()
    start_wsgi("keystone", "keystone-wsgi-public", 5000, 2)
    start_wsgi("placement", "placement-api", 8778, 1)
    start_wsgi("glance", "glance-wsgi-api", 9292, 1)
    answers("rabbit", 5672)
    config = ("--config-file", "/etc/neutron/neutron.conf")
    start("neutron-server", "neutron-server", *config)
    start_wsgi("nova-api", "nova-api-wsgi", 8774, 2)
    for name in ["nova-conductor", "nova-scheduler", "nova-compute"]:
        # Nothing but this: Debian's own file for nova-compute names another driver.
        start(name, name, "--config-file", "/etc/nova/nova.conf")
    answers("neutron-server", 9696, ADDRESS)
    for name in ["linuxbridge", "l3", "dhcp"]:
        start(f"neutron-{name}-agent", f"neutron-{name}-agent", *config)
    for name, port in [("keystone", 5000), ("glance", 9292), ("nova-api", 8774)]:
        answers(name, port, ADDRESS)
    until("keystone", "it answers", lambda: tried(lambda: Project("admin", "admin")))
    admin = Project("admin", "admin")
    until("neutron-server", "it answers", lambda: tried(lambda: admin.network("GET", "agents")))
    make_offers(admin)
    kinds = {"linuxbridge": "Linux bridge agent", "l3": "L3 agent", "dhcp": "DHCP agent"}
    for name, kind in kinds.items():
        until(f"neutron-{name}-agent", "it reports", lambda: is_alive(admin, kind))
    # A host of machines counts once nova has put it into a cell.
    until("nova-compute", "it is known", lambda: tried(
        lambda: admin.call("compute", "GET", "os-hypervisors")["hypervisors"]))
    print(f"the cloud is open, after {time.monotonic() - begin:.0f} s", flush=True)
    stay()


def tried(ask):
    """The answer, or nothing where a service is not ready yet."""
    try:
        return ask()
    except (OSError, Refused):
        return None


def is_alive(admin, kind):
    found = tried(lambda: admin.network("GET", "agents")) or {"agents": []}
    return any(agent["agent_type"] == kind and agent["alive"] for agent in found["agents"])


def make_offers(admin):
    """What a provider has before a customer comes: a way out, kinds of machines, an image."""
    network = {"name": "ext", "router:external": True, "provider:network_type": "flat",
               "provider:physical_network": "ext"}
    network = admin.network("POST", "networks", {"network": network})["network"]["id"]
    pool = {"start": OUT_POOL[0], "end": OUT_POOL[1]}
    admin.network("POST", "subnets", {"subnet": {
        "network_id": network, "ip_version": 4, "cidr": OUT, "gateway_ip": OUT_GATEWAY,
        "enable_dhcp": False, "allocation_pools": [pool]}})
    until("nova-api", "it answers", lambda: tried(lambda: admin.call("compute", "GET", "flavors")))
    # One is too small, and one has no disk, which a member may not start.
    for name, ram, disk in [("tiny", 256, 1), ("diskless", 512, 0), ("small", 1024, 1)]:
        flavor = {"name": name, "ram": ram, "disk": disk, "vcpus": 1}
        admin.call("compute", "POST", "flavors", {"flavor": flavor})
    image = {"name": "Debian 12 genericcloud", "disk_format": "raw", "container_format": "bare",
             "visibility": "public"}
    image = admin.call("image", "POST", "v2/images", image)["id"]
    admin.call("image", "PUT", f"v2/images/{image}/file", b"no system",
               Content_Type="application/octet-stream")


def stay():
    """Waits for processes that end, whoever started them; ends with the first service that does."""
    names = {process.pid: name for name, process in running.items()}
    while True:
        pid, status = os.wait()
        if pid in names:
            give_up(f"{names[pid]} ended, status {status}", names[pid])


if sys.argv[1] == "prepare":
    prepare()
else:
    serve()
