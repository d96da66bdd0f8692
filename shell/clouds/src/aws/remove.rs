//! What is not wanted at AWS any more is removed, each after what hangs on it.

use std::time::{Duration, Instant};

use sites::{Id, Kind};

use super::{Region, made, pair, read};
use crate::retry::Failure;

/// A machine ends within so long.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
const ASK_EVERY: Duration = Duration::from_secs(2);

impl Region {
    pub(super) fn remove_once(&mut self, id: &Id) -> Result<(), Failure> {
        let Some(thing) = self.things.get(id).cloned() else { return Ok(()) };
        let aws = thing.its.as_str();
        match id.kind {
            Kind::Route => {
                let Some(table) = self.aws_of(Kind::Table, &id.site, "routes") else {
                    return Ok(());
                };
                let to = thing.properties.get("to").cloned().unwrap_or_default();
                let parameters = [pair("RouteTableId", table), pair("DestinationCidrBlock", to)];
                self.done("DeleteRoute", &parameters)
            }
            Kind::MachineRule => {
                for from in thing.properties.get("from").into_iter().flat_map(|all| all.split(','))
                {
                    let mut parameters = vec![pair("GroupId", aws)];
                    parameters.extend(made::permission(&format!("all {from}"), None));
                    self.done("RevokeSecurityGroupIngress", &parameters)?;
                }
                Ok(())
            }
            Kind::Machine => {
                self.done("TerminateInstances", &[pair("InstanceId.1", aws)])?;
                self.wait_for_end(aws)
            }
            Kind::Address => {
                if let Some(association) = self.association(aws)? {
                    self.done("DisassociateAddress", &[pair("AssociationId", association)])?;
                }
                self.done("ReleaseAddress", &[pair("AllocationId", aws)])
            }
            Kind::Table => {
                for association in self.table_associations(aws)? {
                    self.done("DisassociateRouteTable", &[pair("AssociationId", association)])?;
                }
                self.done("DeleteRouteTable", &[pair("RouteTableId", aws)])
            }
            Kind::InternetGateway => {
                if let Some(network) = self.aws_of(Kind::Network, &id.site, "vpc") {
                    let parameters = [pair("InternetGatewayId", aws), pair("VpcId", network)];
                    let detached = self.done("DetachInternetGateway", &parameters);
                    if let Err(failure) = detached
                        && !failure.is_absence()
                    {
                        return Err(failure);
                    }
                }
                self.done("DeleteInternetGateway", &[pair("InternetGatewayId", aws)])
            }
            Kind::Group => self.done("DeleteSecurityGroup", &[pair("GroupId", aws)]),
            Kind::Interface => {
                self.done("DeleteNetworkInterface", &[pair("NetworkInterfaceId", aws)])
            }
            Kind::Subnet => self.done("DeleteSubnet", &[pair("SubnetId", aws)]),
            Kind::Network => self.done("DeleteVpc", &[pair("VpcId", aws)]),
            _ => Ok(()),
        }
    }

    /// Waits until a machine has ended, for as long as it holds its interface.
    fn wait_for_end(&mut self, aws: &str) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            let answer = self.client.call("DescribeInstances", &[pair("InstanceId.1", aws)])?;
            let all = read::items(&answer, "reservationSet").into_iter();
            let mut machines = all.flat_map(|one| read::items(one, "instancesSet"));
            if machines.all(|one| read::state(one) == "terminated") {
                return Ok(());
            }
            if begin.elapsed() > ENDS_WITHIN {
                return Err(Failure {
                    code: "Waiting".to_owned(),
                    what: format!("{aws} does not end within {} s", ENDS_WITHIN.as_secs()),
                    is_lost: false,
                });
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    fn association(&mut self, aws: &str) -> Result<Option<String>, Failure> {
        let answer = self.client.call("DescribeAddresses", &[pair("AllocationId.1", aws)])?;
        let all = read::items(&answer, "addressesSet").into_iter();
        Ok(all.map(|one| read::text(one, "associationId")).find(|text| !text.is_empty()))
    }

    fn table_associations(&mut self, aws: &str) -> Result<Vec<String>, Failure> {
        let answer = self.client.call("DescribeRouteTables", &[pair("RouteTableId.1", aws)])?;
        let tables = read::items(&answer, "routeTableSet").into_iter();
        let all = tables.flat_map(|table| read::items(table, "associationSet"));
        let ids = all.map(|one| read::text(one, "routeTableAssociationId"));
        Ok(ids.filter(|text| !text.is_empty()).collect())
    }
}
