"""What a test asks of the cloud behind `cloud.py`, as its administrator.

    asked.py FOLDER census | spoil | terminate | forbid RIGHT | allow | foreign
    asked.py FOLDER lock SECONDS | unlock
    asked.py FOLDER fabric PUBLIC GATEWAY    what the cloud believes, as a script of sh and nft
    asked.py - script FILE                   what user data does, as a script of sh
"""

import base64, json, os, pathlib, sys, time

folder, word, *rest = sys.argv[1:]

if word == "script":
    import yaml

    text = pathlib.Path(rest[0]).read_text()
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    assert set(config) == {"write_files", "runcmd"}, config
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


def fabric(public, gateway):
    check = interface()["SourceDestCheck"]
    table = ours(ec2.describe_route_tables, "RouteTables")[0]
    alive = {one["NetworkInterfaceId"]: one["PrivateIpAddress"]
             for one in ec2.describe_network_interfaces()["NetworkInterfaces"]}
    print("ip route flush proto 200 || true")
    for route in table["Routes"]:
        via = alive.get(route.get("NetworkInterfaceId"))
        if via:
            print(f"ip route replace {route['DestinationCidrBlock']} via {via} dev gw0 onlink proto 200")
    lines = ["flush ruleset", "table ip cloud {"]
    address = [one for one in ours(ec2.describe_addresses, "Addresses")
               if one.get("PrivateIpAddress") == gateway]
    if address:
        lines += [f"chain in {{ type nat hook prerouting priority dstnat; iifname wan0 ip daddr {public} dnat to {gateway}; }}",
                  f"chain out {{ type nat hook postrouting priority srcnat; oifname wan0 ip saddr {gateway} snat to {public}; }}"]
    lines.append("chain pass { type filter hook forward priority 0; policy drop;")
    if check:
        lines += [f"iifname gw0 ip saddr != {gateway} drop", f"oifname gw0 ip daddr != {gateway} drop"]
    lines.append("ct state established,related accept")
    for port, rules in [("gw0", group()["IpPermissions"]), ('"app*"', default_group()["IpPermissions"])]:
        for rule in rules:
            for range in rule.get("IpRanges", []):
                ports = "" if rule["IpProtocol"] == "-1" else \
                    f"{rule['IpProtocol']} dport {rule['FromPort']}-{rule['ToPort']} "
                lines.append(f"oifname {port} ip saddr {range['CidrIp']} {ports}accept")
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


def rights(without=None):
    policy = json.loads((folder / "policy.json").read_text())
    for statement in policy["Statement"]:
        statement["Action"] = [action for action in statement["Action"] if action != without]
    iam.put_user_policy(UserName="operator", PolicyName="p", PolicyDocument=json.dumps(policy))


def terminate():
    ids = [one["InstanceId"] for all in ours(ec2.describe_instances, "Reservations")
           for one in all["Instances"] if one["State"]["Name"] != "terminated"]
    # Through the door, which knows what becomes of its interface.
    door = dict(place, endpoint_url=keys["door"], verify=str(folder / "ca.pem"))
    boto3.client("ec2", **door).terminate_instances(InstanceIds=ids)


words = {"census": census, "spoil": spoil, "fabric": fabric, "foreign": foreign, "lock": lock,
         "unlock": lambda: ec2.delete_key_pair(KeyName="warren-lock-acme-cloud"),
         "forbid": rights, "allow": rights, "terminate": terminate}
words[word](*rest)
