"""What a test asks of the cloud behind `cloud.py`, as its administrator.

    asked.py FOLDER census | spoil | terminate | release | forbid RIGHT | allow | foreign
    asked.py FOLDER role [RIGHT]             gateways' role has its policy, or all of it but one right
    asked.py FOLDER lock SECONDS | unlock
    asked.py FOLDER fabric PUBLIC GATEWAY…   what the cloud believes, as a script of sh and nft; for
                                             a pair both words come twice
    asked.py - script FILE                   what user data does, as a script of sh
"""

import base64, json, os, pathlib, sys, time

folder, word, *rest = sys.argv[1:]

if word == "script":
    import yaml

    text = pathlib.Path(rest[0]).read_text()
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    # What it would install is here already.
    assert set(config) - {"package_update", "packages"} == {"write_files", "runcmd"}, config
    for file in config["write_files"]:
        assert set(file) == {"path", "permissions", "content"}, file
        content = base64.b64encode(file["content"].encode()).decode()
        print(f"echo {content} | base64 -d > {file['path']}; chmod {file['permissions']} {file['path']}")
    for command in config["runcmd"]:
        print(" ".join(command))
    sys.exit()

import boto3

# Whoever starts this may have accounts of their own.
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
    os.environ.pop(name, None)

folder = pathlib.Path(folder)
keys = json.loads((folder / "keys.json").read_text())
place = dict(region_name="eu-west-1", endpoint_url="http://127.0.0.1:5959",
             aws_access_key_id=keys["admin"][0], aws_secret_access_key=keys["admin"][1])
ec2, iam = boto3.client("ec2", **place), boto3.client("iam", **place)
OURS = [{"Name": "tag:warren:net", "Values": ["acme"]}]


def ours(call, key):
    return call(Filters=OURS)[key]


def interface():
    return ours(ec2.describe_network_interfaces, "NetworkInterfaces")[0]


def group():
    return [one for one in ours(ec2.describe_security_groups, "SecurityGroups")
            if one["GroupName"] != "default"][0]


def default_group():
    vpc = ours(ec2.describe_vpcs, "Vpcs")[0]["VpcId"]
    return ec2.describe_security_groups(Filters=[
        {"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    )["SecurityGroups"][0]


def census():
    machines = [one for all in ec2.describe_instances()["Reservations"] for one in all["Instances"]]
    counts = {
        "vpcs": len(ec2.describe_vpcs()["Vpcs"]),
        "subnets": len(ec2.describe_subnets()["Subnets"]),
        "internet_gateways": len(ec2.describe_internet_gateways()["InternetGateways"]),
        "groups": len(ec2.describe_security_groups()["SecurityGroups"]),
        "tables": len(ec2.describe_route_tables()["RouteTables"]),
        "interfaces": len(ec2.describe_network_interfaces()["NetworkInterfaces"]),
        "addresses": len(ec2.describe_addresses()["Addresses"]),
        "machines": len([one for one in machines if one["State"]["Name"] != "terminated"]),
        "key_pairs": len(ec2.describe_key_pairs()["KeyPairs"]),
    }
    print(json.dumps(counts))


def spoil():
    """What people do by hand: a check switched on, ports opened, a rule and a route of ours gone."""
    ec2.modify_network_interface_attribute(
        NetworkInterfaceId=interface()["NetworkInterfaceId"], SourceDestCheck={"Value": True})
    ec2.authorize_security_group_ingress(GroupId=group()["GroupId"], IpPermissions=[
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}])
    ec2.revoke_security_group_ingress(GroupId=default_group()["GroupId"], IpPermissions=[
        {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}])
    table = ours(ec2.describe_route_tables, "RouteTables")[0]["RouteTableId"]
    # An interface that is gone: the route leads nowhere.
    subnet = ours(ec2.describe_subnets, "Subnets")[0]["SubnetId"]
    other = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    ec2.replace_route(RouteTableId=table, DestinationCidrBlock="10.0.0.0/8", NetworkInterfaceId=other)
    ec2.delete_network_interface(NetworkInterfaceId=other)


def fabric(*words):
    gateways = list(zip(words[::2], words[1::2]))
    found = ours(ec2.describe_network_interfaces, "NetworkInterfaces")
    check = {one["PrivateIpAddress"]: one["SourceDestCheck"] for one in found}
    table = ours(ec2.describe_route_tables, "RouteTables")[0]
    port = lambda address: f"gw{254 - int(address.rsplit('.', 1)[1])}"
    alive = {one["NetworkInterfaceId"]: one["PrivateIpAddress"]
             for one in ec2.describe_network_interfaces()["NetworkInterfaces"]}
    print("ip route flush proto 200 || true")
    for route in table["Routes"]:
        via = alive.get(route.get("NetworkInterfaceId"))
        if via:
            # What leads to somebody who is no gateway leads nowhere.
            at = port(via) if via in check else "gw0"
            print(f"ip route replace {route['DestinationCidrBlock']} via {via} dev {at} onlink proto 200")
    held = [one.get("PrivateIpAddress") for one in ours(ec2.describe_addresses, "Addresses")]
    public = [pair for pair in gateways if pair[1] in held]
    into = " ".join(f"iifname wan0 ip daddr {out} dnat to {own};" for out, own in public)
    out = " ".join(f"oifname wan0 ip saddr {own} snat to {out};" for out, own in public)
    lines = ["flush ruleset", "table ip cloud {",
             f"chain in {{ type nat hook prerouting priority dstnat; {into} }}",
             f"chain out {{ type nat hook postrouting priority srcnat; {out} }}",
             "chain pass { type filter hook forward priority 0; policy drop;"]
    for _, own in gateways:
        if check.get(own):
            lines += [f"iifname {port(own)} ip saddr != {own} drop", f"oifname {port(own)} ip daddr != {own} drop"]
    lines.append("ct state established,related accept")
    for at, rules in [('"gw*"', group()["IpPermissions"]), ('"app*"', default_group()["IpPermissions"])]:
        for rule in rules:
            for range in rule.get("IpRanges", []):
                ports = "" if rule["IpProtocol"] == "-1" else \
                    f"{rule['IpProtocol']} dport {rule['FromPort']}-{rule['ToPort']} "
                lines.append(f"oifname {at} ip saddr {range['CidrIp']} {ports}accept")
    # Its own machines are in the default group, whose rule for itself moto leaves out, and nobody is
    # kept from sending.
    lines += ['iifname "app*" oifname "app*" accept', "oifname wan0 accept", "}", "}"]
    print("nft -f - <<'RULES'\n" + "\n".join(lines) + "\nRULES")


def foreign():
    """A network of somebody else's with an address of ours, which is as it is made."""
    found = [one for one in ec2.describe_vpcs()["Vpcs"] if one["CidrBlock"] == "10.1.0.0/16"]
    vpc = found[0] if found else ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]
    groups = ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc["VpcId"]]}])["SecurityGroups"]
    print(vpc["VpcId"], [one["IpPermissions"] for one in groups])


def lock(left_s):
    tags = {"warren:by": "somebody@elsewhere other 1", "warren:until": str(int(time.time()) + int(left_s))}
    ec2.create_key_pair(KeyName="warren-lock-acme-cloud", TagSpecifications=[
        {"ResourceType": "key-pair", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}])


def policy(who, without):
    whole = json.loads((folder / "policy.json").read_text())
    document = whole.get(who, whole)
    for statement in document["Statement"]:
        statement["Action"] = [action for action in statement["Action"] if action != without]
    document["Statement"] = [one for one in document["Statement"] if one["Action"]]
    return json.dumps(document)


def rights(without=None):
    iam.put_user_policy(UserName="operator", PolicyName="p", PolicyDocument=policy("operator", without))


def role(without=None):
    iam.put_role_policy(RoleName="gateways", PolicyName="p", PolicyDocument=policy("gateway", without))


def terminate():
    ids = [one["InstanceId"] for all in ours(ec2.describe_instances, "Reservations")
           for one in all["Instances"] if one["State"]["Name"] != "terminated"]
    # Through the door, which knows what becomes of its interface.
    door = dict(place, endpoint_url=keys["door"], verify=str(folder / "ca.pem"))
    boto3.client("ec2", **door).terminate_instances(InstanceIds=ids)


def release():
    """The gateway's public address is given back by hand."""
    for one in ours(ec2.describe_addresses, "Addresses"):
        ec2.disassociate_address(AssociationId=one["AssociationId"])
        ec2.release_address(AllocationId=one["AllocationId"])


words = {"census": census, "spoil": spoil, "fabric": fabric, "foreign": foreign, "lock": lock,
         "unlock": lambda: ec2.delete_key_pair(KeyName="warren-lock-acme-cloud"),
         "forbid": rights, "allow": rights, "role": role, "release": release,
         "terminate": terminate}
words[word](*rest)
