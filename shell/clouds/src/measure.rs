//! One gateway measures its path to another one: what that has left beside what others send.

use serde_json::Value;
use sites::{File, Provider, node_name};

use crate::{Error, Ssh};

/// Has the first gateway of the site `from` measure its path to that of `to`, which takes up to a
/// minute; what it says of it.
///
/// # Errors
/// Why it was not measured, with the machine.
pub fn measure(file: &File, ssh: &Ssh, from: usize, to: usize) -> Result<Value, Error> {
    let site = &file.sites[from];
    let Some(host) = site.hosts.first().filter(|_| site.provider == Provider::Ssh) else {
        let what = "its gateway is not asked itself, for it is at a cloud, where nobody can log \
                    in; measure from a site that `ssh` reaches";
        return Err(Error::new(&site.name, what));
    };
    let told = ssh.run(host, &script(file, &node_name(file, to, 0)), b"")?;
    serde_json::from_str(&told).map_err(|error| {
        let what = format!(
            "it said nothing that can be read ({error}); `warren sites apply` \
                            brings its program up to date"
        );
        Error::new(host, what)
    })
}

fn script(file: &File, peer: &str) -> String {
    format!("exec {} bandwidth {peer} --json\n", file.program)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "network = \"n\"\n[[site]]\nname = \"a\"\nprovider = \"ssh\"\n\
                        hosts = [\"h\"]\n[[site]]\nname = \"b\"\nprovider = \"aws\"\n\
                        region = \"eu-central-1\"\n";

    #[test]
    fn a_gateway_is_asked_by_ssh_and_a_cloud_is_not() {
        let file = File::read(TEXT).unwrap();
        let said = script(&file, &node_name(&file, 1, 0));
        assert_eq!(said, format!("exec {} bandwidth n-b-gw1 --json\n", file.program));
        let ssh = Ssh::new(None).unwrap();
        let error = measure(&file, &ssh, 1, 0).unwrap_err();
        assert!(error.place == "b" && error.what.contains("not asked itself"), "{error}");
    }
}
