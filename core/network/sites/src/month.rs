//! What gateways cost in a month, by the prices that the file has. No provider is asked, and what
//! traffic costs is in none of it.

use crate::file::File;

/// Hours of a month, as providers count them.
pub const MONTH_H: u64 = 730;

/// What a month costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Month {
    /// Gateways whose price is known.
    pub gateways: u64,
    /// What they cost, in hundredths.
    pub hundredths: u64,
    /// Sites whose gateways have no price.
    pub unknown: Vec<String>,
}

/// What the gateways of a file cost in a month.
#[must_use]
pub fn month(file: &File) -> Month {
    let mut month = Month { gateways: 0, hundredths: 0, unknown: Vec::new() };
    let mut parts = 0;
    for site in &file.sites {
        match site.price.or_else(|| file.prices.at(site.provider.word())) {
            Some(price) => {
                month.gateways += u64::from(site.gateways);
                parts += price * u64::from(site.gateways) * MONTH_H;
            }
            None => month.unknown.push(site.name.clone()),
        }
    }
    month.hundredths = (parts + 5_000) / 10_000;
    month
}
