"""Microsoft's client of Azure at work on `arm.py`: a network, an interface, a machine, refusals.

    client.py FOLDER ENDPOINT
"""

import base64, pathlib, re, sys, time, urllib.parse, urllib.request, ssl, json

from azure.core.credentials import AccessToken
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient

folder, endpoint = pathlib.Path(sys.argv[1]), sys.argv[2]
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
HOLDER, TAGS = "warren-n-a", {"warren:net": "n"}
CA = str(folder / "arm-ca.pem")


class Credential:
    def get_token(self, *scopes, **_):
        form = {"client_id": "a-client", "client_secret": "a&secret", "scope": "x/.default"}
        context = ssl.create_default_context(cafile=CA)
        data = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{endpoint}/a-tenant/oauth2/v2.0/token", data, context=context) as answer:
            return AccessToken(json.loads(answer.read())["access_token"], int(time.time()) + 3000)


def group():
    """The client of resource groups is a package of its own, so this one call is by hand."""
    url = f"{endpoint}/subscriptions/{SUBSCRIPTION}/resourceGroups/{HOLDER}?api-version=2021-04-01"
    request = urllib.request.Request(url, json.dumps({"location": "westeurope", "tags": TAGS}).encode(), method="PUT", headers={
        "Authorization": f"Bearer {Credential().get_token().token}", "Content-Type": "application/json"})
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=CA)).read()


class Version(SansIOHTTPPolicy):
    """The client asks for the newest version; the server plays the one that Warren follows."""

    def on_request(self, request):
        kind = "2021-07-01" if "Microsoft.Compute" in request.http_request.url else "2021-05-01"
        request.http_request.url = re.sub(r"api-version=[0-9-]+", f"api-version={kind}", request.http_request.url)


words = dict(credential=Credential(), subscription_id=SUBSCRIPTION, base_url=endpoint, connection_verify=CA,
             credential_scopes=["x/.default"], polling_interval=0.1, per_call_policies=[Version()])
network = NetworkManagementClient(**words)
compute = ComputeManagementClient(**words)

try:
    network.virtual_networks.get(HOLDER, "network")
    raise SystemExit("there is no such group")
except ResourceNotFoundError as error:
    assert error.error.code == "ResourceGroupNotFound", error
group()
made = network.virtual_networks.begin_create_or_update(HOLDER, "network", {
    "location": "westeurope", "tags": TAGS, "properties": {"addressSpace": {"addressPrefixes": ["10.2.0.0/24"]}}}).result()
assert made.provisioning_state == "Succeeded", made
subnet = network.subnets.begin_create_or_update(HOLDER, "network", "subnet", {
    "properties": {"addressPrefix": "10.2.0.0/24"}}).result()
try:
    network.subnets.begin_create_or_update(HOLDER, "network", "other", {
        "properties": {"addressPrefix": "10.2.0.0/25"}}).result()
    raise SystemExit("subnets overlap")
except HttpResponseError as error:
    assert error.error.code == "NetcfgSubnetRangesOverlap", error
nsg = network.network_security_groups.begin_create_or_update(HOLDER, "gateway", {"location": "westeurope"}).result()
nic = network.network_interfaces.begin_create_or_update(HOLDER, "nic", {
    "location": "westeurope", "properties": {
        "enableIPForwarding": True, "networkSecurityGroup": {"id": nsg.id}, "ipConfigurations": [
            {"name": "inside", "properties": {"privateIPAllocationMethod": "Static", "primary": True,
                                              "privateIPAddress": "10.2.0.254", "subnet": {"id": subnet.id}}}]}}).result()
assert nic.enable_ip_forwarding and nic.ip_configurations[0].private_ip_address == "10.2.0.254", nic
compute.virtual_machines.begin_create_or_update(HOLDER, "vm", {
    "location": "westeurope", "properties": {
        "hardwareProfile": {"vmSize": "Standard_B1s"},
        "storageProfile": {"imageReference": {"publisher": "Debian", "offer": "debian-12", "sku": "12", "version": "latest"},
                           "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"}},
        "osProfile": {"computerName": "vm", "adminUsername": "u", "customData": base64.b64encode(b"x").decode(),
                      "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {
                          "publicKeys": [{"path": "/".join(["", "home", "u", ".ssh", "authorized_keys"]), "keyData": "ssh-ed25519 AAAA u"}]}}},
        "networkProfile": {"networkInterfaces": [{"id": nic.id, "properties": {"primary": True}}]}}}).result()
seen = compute.virtual_machines.get(HOLDER, "vm", expand="instanceView")
assert [one.code for one in seen.instance_view.statuses][-1] == "PowerState/running", seen
for call, code in [(lambda: network.network_interfaces.begin_delete(HOLDER, "nic"), "NicInUse"),
                   (lambda: network.network_security_groups.begin_delete(HOLDER, "gateway"),
                    "InUseNetworkSecurityGroupCannotBeDeleted"),
                   (lambda: network.virtual_networks.begin_delete(HOLDER, "network"), "InUseSubnetCannotBeDeleted")]:
    try:
        call().result()
        raise SystemExit(f"{code} was to be refused")
    except HttpResponseError as error:
        assert error.error.code == code, error
compute.virtual_machines.begin_delete(HOLDER, "vm").result()
network.network_interfaces.begin_delete(HOLDER, "nic").result()
network.network_security_groups.begin_delete(HOLDER, "gateway").result()
network.virtual_networks.begin_delete(HOLDER, "network").result()
assert not list(network.virtual_networks.list(HOLDER)) and not list(compute.virtual_machines.list(HOLDER))
print("everything is as it should be")
