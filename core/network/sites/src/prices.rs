//! Prices as the file has them.

use std::collections::BTreeMap;

use toml::de::DeTable;

use crate::table::{Keys, Mistakes};

/// A price has so many parts a unit.
const PARTS: f64 = 1e6;
/// The highest price of an hour.
const PRICE_MAX: f64 = 1e6;

/// What an hour of one gateway costs, in millionths of whatever the file's prices are in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prices {
    /// Where nothing else is said.
    gateway: Option<u64>,
    /// By the word of a provider.
    of: BTreeMap<&'static str, u64>,
}

impl Prices {
    /// The price at a provider, by its word.
    pub(crate) fn at(&self, provider: &str) -> Option<u64> {
        self.of.get(provider).copied().or(self.gateway)
    }
}

/// Reads `[prices]`, if it is there.
pub(crate) fn read(keys: &mut Keys<'_>, mistakes: &mut Mistakes<'_>) -> Prices {
    let mut prices = Prices::default();
    let Some((value, span)) = keys.take("prices") else { return prices };
    let Some(table): Option<&DeTable<'_>> = value.as_table() else {
        mistakes.add(span, "prices is a table; write [prices]");
        return prices;
    };
    let mut inner = Keys::new(table, span, "[prices]");
    prices.gateway = price(&mut inner, "gateway", mistakes);
    for key in ["aws", "azure", "openstack", "ssh"] {
        prices.of.extend(price(&mut inner, key, mistakes).map(|price| (key, price)));
    }
    inner.finish(mistakes);
    prices
}

/// A price of an hour.
pub(crate) fn price(
    keys: &mut Keys<'_>,
    key: &'static str,
    mistakes: &mut Mistakes<'_>,
) -> Option<u64> {
    let (value, span) = keys.take(key)?;
    let float = value.as_float().map(|number| number.as_str());
    let whole = value.as_integer().filter(|n| n.radix() == 10).map(|number| number.as_str());
    let read = float.or(whole).and_then(|text| text.parse::<f64>().ok());
    let read = read.filter(|price| (0.0..=PRICE_MAX).contains(price));
    if read.is_none() {
        mistakes.add(span, format!("{key} is a price of an hour, as in 0.05"));
    }
    read.map(|price| (price * PARTS).round() as u64)
}
