//! What must exist for a whole file, at each of its providers.

use crate::backend::Backend;
use crate::file::{File, Provider};
use crate::graph::{Known, Resource};
use crate::number::Numbering;
use crate::{aws, azure, foreign, openstack, ssh, through};

/// What must exist for the whole file, in no order.
#[must_use]
pub fn desired(file: &File, numbering: &Numbering, known: &Known) -> Vec<Resource> {
    let mut all = Vec::new();
    for index in 0..file.sites.len() {
        let before = all.len();
        match file.sites[index].provider {
            Provider::Ssh => ssh::desired(file, numbering, index, known, &mut all),
            Provider::Aws => aws::desired(file, numbering, index, known, &mut all),
            Provider::Azure => azure::desired(file, numbering, index, known, &mut all),
            Provider::OpenStack => openstack::desired(file, numbering, index, known, &mut all),
        }
        let site = &file.sites[index];
        match site.backend {
            _ if site.provider == Provider::Ssh => {}
            Backend::Warren => {
                through::by_the_server(file, numbering, index, &mut all[before..]);
            }
            _ => foreign::at_cloud(file, numbering, index, known, &mut all),
        }
    }
    all
}
