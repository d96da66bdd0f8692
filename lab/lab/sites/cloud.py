"""AWS as far as a site needs it: moto's server, with its checks of signatures and rights, behind a
door that speaks TLS, does what moto leaves out of EC2's rules, and fails as a test wants it to.

    cloud.py FOLDER ADDRESS PORT POLICY

POLICY is the operator's, or two: `operator`, and `gateway` of the role `gateways` that machines may
have. FOLDER gets `ca.pem`, `keys.json` (of an administrator, of the operator, and of that role as a
machine has them), and `boot-ID` for each machine that was run: its user data. `moved` there says in
words of `ip` where routes lead that were replaced. `faults.json` says how to fail, as `faults.py` has
it, by the names of actions, and beside that:
  ahead_s: the cloud's clock is so far ahead of this machine's
  slow_s: for so long what was made is not shown, and a machine that was run is pending
`public` there is the one public address that the cloud gives; moto's are this machine's own.
Every call is a line of standard output: its number, its action, what became of it.
"""

import base64, datetime, email.utils, fnmatch, http.client, http.server, json, os, pathlib, re, ssl, sys
import socketserver, subprocess, threading, time, urllib.parse

FOLDER, ADDRESS, PORT, POLICY = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
REGION = "eu-west-1"
BEHIND = 5959
# Users, their rights and keys come first; from then on every call is checked.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "6"
# Whoever starts this may have accounts of their own.
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
    os.environ.pop(name, None)

import boto3
from moto.ec2.models import ec2_backends
from moto.server import ThreadedMotoServer
from moto.sts.models import sts_backends

# Tests run it where its source is.
sys.dont_write_bytecode = True
from faults import Faults

moto = ThreadedMotoServer(ip_address="127.0.0.1", port=BEHIND, verbose=False)
moto.start()
place = dict(region_name=REGION, endpoint_url=f"http://127.0.0.1:{BEHIND}")
first = boto3.client("iam", aws_access_key_id="x", aws_secret_access_key="x", **place)
keys = {}
rights = json.loads(pathlib.Path(POLICY).read_text())
everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
for name, policy in [("admin", everything), ("operator", rights.get("operator", rights))]:
    first.create_user(UserName=name)
    first.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps(policy))
    key = first.create_access_key(UserName=name)["AccessKey"]
    keys[name] = [key["AccessKeyId"], key["SecretAccessKey"]]
place |= dict(aws_access_key_id=keys["admin"][0], aws_secret_access_key=keys["admin"][1])
admin, iam = boto3.client("ec2", **place), boto3.client("iam", **place)
if "gateway" in rights:
    # A role and an instance profile of one name, as the console makes them; a machine that has it is
    # given keys that end.
    trust = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}]}
    role = iam.create_role(RoleName="gateways", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    iam.put_role_policy(RoleName="gateways", PolicyName="p", PolicyDocument=json.dumps(rights["gateway"]))
    iam.create_instance_profile(InstanceProfileName="gateways")
    iam.add_role_to_instance_profile(InstanceProfileName="gateways", RoleName="gateways")
    given = sts_backends[role.split(":")[4]]["aws"].assume_role(
        region_name=REGION, role_session_name="machine", role_arn=role, policy="", duration=3600, external_id="")
    keys["gateway"] = {"Code": "Success", "AccessKeyId": given.access_key_id,
                       "SecretAccessKey": given.secret_access_key, "Token": given.session_token}
images = admin.describe_images(Filters=[{"Name": "architecture", "Values": ["x86_64"]}])["Images"]
keys |= {"image": images[0]["ImageId"], "door": f"https://{ADDRESS}:{PORT}"}

subprocess.run(
    ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
     "-days", "2", "-subj", "/CN=cloud", "-addext", f"subjectAltName=IP:{ADDRESS}",
     "-addext", "basicConstraints=critical,CA:FALSE",
     "-keyout", FOLDER / "cloud.key", "-out", FOLDER / "ca.pem"], check=True, capture_output=True)

lock = threading.Lock()
faults, tokens = Faults(FOLDER), {}
# When looks at a kind show what was made last.
shown_at = {}
LISTS = {"CreateVpc": "Vpcs", "CreateSubnet": "Subnets", "CreateInternetGateway": "InternetGateways",
         "CreateSecurityGroup": "SecurityGroups", "CreateRouteTable": "RouteTables",
         "CreateNetworkInterface": "NetworkInterfaces", "AllocateAddress": "Addresses",
         "RunInstances": "Instances"}


def error(status, code, message):
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>" \
           "</Errors><RequestID>0</RequestID></Response>"
    return status, body.encode()


def may_pass(profile):
    """Whether the operator may give a machine the role of this name."""
    document = iam.get_user_policy(UserName="operator", PolicyName="p")["PolicyDocument"]
    passes = [one["Resource"] for one in document["Statement"] if "iam:PassRole" in one["Action"]]
    name = f"arn:aws:iam::123456789012:role/{profile}"
    return any(fnmatch.fnmatch(name, to) for resources in passes for to in resources)


def follow(table):
    """Tells a fabric where a table's routes lead now."""
    routes = admin.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    found = admin.describe_network_interfaces()["NetworkInterfaces"]
    at = {one["NetworkInterfaceId"]: one["PrivateIpAddress"] for one in found}
    with open(FOLDER / "moved", "a") as file:
        for route in routes:
            via = at.get(route.get("NetworkInterfaceId"))
            if via:
                port = f"gw{254 - int(via.rsplit('.', 1)[1])}"
                to = route["DestinationCidrBlock"]
                file.write(f"ip route replace {to} via {via} dev {port} onlink proto 200\n")


def refused(action, form):
    """What EC2 refuses and moto does not."""
    get = lambda name: form.get(name, [""])[0]
    profile = get("IamInstanceProfile.Name")
    if action == "RunInstances" and profile and not may_pass(profile):
        return error(403, "UnauthorizedOperation", f"not authorized to perform: iam:PassRole on {profile}")
    if action == "CreateRoute":
        tables = admin.describe_route_tables(RouteTableIds=[get("RouteTableId")])["RouteTables"]
        known = {route.get("DestinationCidrBlock"): route for route in tables[0]["Routes"]}
        route = known.get(get("DestinationCidrBlock"))
        if route and route.get("GatewayId") == "local":
            return error(400, "InvalidParameterValue", "the local route stays")
        if route:
            return error(400, "RouteAlreadyExists", "there is such a route")
    if action == "CreateNetworkInterface":
        found = admin.describe_network_interfaces(
            Filters=[{"Name": "subnet-id", "Values": [get("SubnetId")]}])["NetworkInterfaces"]
        if get("PrivateIpAddress") in [one["PrivateIpAddress"] for one in found]:
            return error(400, "InvalidIPAddress.InUse", "it has an interface already")
    if action in ("DeleteSecurityGroup", "DeleteNetworkInterface", "DeleteSubnet"):
        name, what = {"DeleteSecurityGroup": ("group-id", "GroupId"),
                      "DeleteNetworkInterface": ("network-interface-id", "NetworkInterfaceId"),
                      "DeleteSubnet": ("subnet-id", "SubnetId")}[action]
        found = admin.describe_network_interfaces(
            Filters=[{"Name": name, "Values": [get(what)]}])["NetworkInterfaces"]
        held = [one for one in found if one.get("Attachment", {}).get("Status") == "attached"]
        if held or (found and action != "DeleteNetworkInterface"):
            return error(400, "DependencyViolation", "an interface has it")
    return None


def detach(machine):
    """A machine that ended holds its interface no more; moto keeps it attached."""
    for region in ec2_backends.values():
        for interface in list(region[REGION].enis.values()):
            if interface.instance and interface.instance.id == machine:
                # Its record of the machine keeps naming it, which answers about machines need.
                interface.instance = interface.attachment_id = interface.attach_time = None
                interface.status = "available"


def seen(action, form, answer):
    """What AWS shows of what was just made: nothing at first, and then a machine that starts."""
    if answer[0] == 200 and action in LISTS:
        shown_at["Describe" + LISTS[action]] = time.time() + faults.get("slow_s", 0)
    if time.time() >= shown_at.get(action, 0):
        return answer
    if action == "DescribeInstances":
        pending = b"<code>0</code><name>pending<"
        return answer[0], re.sub(rb"<code>16</code>\s*<name>running<", pending, answer[1])
    # One that is named is looked for by its own word, which is another list.
    return answer if any(key.endswith("Id.1") for key in form) else \
        (answer[0], f"<{action}Response></{action}Response>".encode())


def behind(path, fields, body):
    connection = http.client.HTTPConnection("127.0.0.1", BEHIND, timeout=60)
    connection.putrequest("POST", path, skip_host=True, skip_accept_encoding=True)
    for name, value in fields:
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def one(path, fields, body):
    form = urllib.parse.parse_qs(body.decode(), keep_blank_values=True)
    action = form.get("Action", ["?"])[0]
    faults.look()
    if faults.is_down(action):
        return action, "down", None
    if faults.is_throttled():
        return action, "throttled", error(503, "RequestLimitExceeded", "slow down")
    if faults.once("broken", action):
        return action, "broken", error(500, "InternalError", "an error occurred")
    date = [value for name, value in fields if name.lower() == "x-amz-date"][0]
    date = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if abs(time.time() + faults.get("ahead_s", 0) - date.timestamp()) > 300:
        return action, "expired", error(400, "RequestExpired", "the clocks differ")
    token = form.get("ClientToken", [None])[0]
    answer = tokens.get((action, token)) if token else None
    # A right that is missing is told before anything else.
    answer = answer or refused(action, form)
    if answer is None:
        if action == "DeleteKeyPair" and "KeyPairId" in form:
            # moto knows key pairs by name only.
            id = form["KeyPairId"][0]
            found = [pair for pair in admin.describe_key_pairs()["KeyPairs"] if pair["KeyPairId"] == id]
            for pair in found:
                admin.delete_key_pair(KeyName=pair["KeyName"])
            answer = 200, b"<DeleteKeyPairResponse><return>true</return></DeleteKeyPairResponse>"
        else:
            answer = behind(path, fields, body)
            if (FOLDER / "public").exists():
                public = b"<publicIp>" + (FOLDER / "public").read_bytes() + b"<"
                answer = answer[0], re.sub(rb"<publicIp>[^<]*<", public, answer[1])
        if token and answer[0] == 200:
            tokens[(action, token)] = answer
        answer = seen(action, form, answer)
        if action == "RunInstances" and answer[0] == 200:
            id = answer[1].decode().split("<instanceId>")[1].split("<")[0]
            (FOLDER / f"boot-{id}.new").write_bytes(base64.b64decode(form["UserData"][0]))
            (FOLDER / f"boot-{id}.new").rename(FOLDER / f"boot-{id}")
        if action == "ReplaceRoute" and answer[0] == 200:
            follow(form["RouteTableId"][0])
        if action == "TerminateInstances" and answer[0] == 200:
            detach(form["InstanceId.1"][0])
    if faults.once("lost", action):
        return action, "lost", None
    return action, str(answer[0]), answer


class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            action, became, answer = one(self.path, self.headers.items(), body)
            print(faults.calls, action, became, flush=True)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer[0])
        now = email.utils.formatdate(time.time() + faults.get("ahead_s", 0), usegmt=True)
        self.send_header("Date", now)
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


server = Server((ADDRESS, PORT), Door)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(FOLDER / "ca.pem", FOLDER / "cloud.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
(FOLDER / "keys.json").write_text(json.dumps(keys))
print("the cloud is open", flush=True)
server.serve_forever()
